# SPDX-License-Identifier: Apache-2.0
"""`kubectl usb exporter`: hosts outside the cluster whose devices are used in it.

Owns arguments and output. Objects and certificates are hosts.py's; the controller signs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from usbdra.cli.group import HELP, HelpingGroup
from usbdra.cli.invocation import Invocation, pass_invocation, write
from usbdra.cli.kubectl import words
from usbdra.cli.kubectl.options import LISTING, common, contract
from usbdra.cli.kubectl.session import ask

if TYPE_CHECKING:
    from usbdra.cli.kubectl.hosts import Signed
    from usbdra.kube.client import KubeClient

HOST = click.argument("host", shell_complete=words.hosts)
HEADERS = ("NAME", "ADDRESS", "READY", "DEVICES", "CERTIFICATE UNTIL")
WIDE = ("MESSAGE",)


@click.group("exporter", cls=HelpingGroup, context_settings=HELP)
def exporter_group() -> None:
    """Hosts outside the cluster that run `usbdra serve`, such as a Raspberry Pi or a lab PC.

    \b
    host# usbdra pki request HOST > HOST.csr
    $ kubectl usb exporter add HOST --address ADDRESS --csr HOST.csr > HOST.pem
    host# usbdra pki accept HOST.pem
    host# usbdra serve
    """


@exporter_group.command("add")
@common()
@click.argument("host")
@click.option("--address", metavar="ADDRESS", help="Where nodes reach it; for one that is new.")
@click.option("--csr", type=click.File("rb"), help="Its request; its key then stays with it.")
@click.option(
    "--with-key",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Make its key here instead, and write it there with the rest.",
)
@click.option(
    "--driver-namespace", default="usbdra", show_default=True, metavar="NAMESPACE",
    help="Where the driver is installed.", shell_complete=words.namespaces,
)  # fmt: skip
@pass_invocation
def add_command(
    invocation: Invocation,
    config: Path | None,
    host: str,
    address: str | None,
    csr: BinaryIO | None,
    with_key: Path | None,
    driver_namespace: str,
) -> None:
    """Add a HOST, or sign its next certificate; what is printed is for `usbdra pki accept`.

    The request is approved with your rights and signed by the controller, which renews the
    certificate from then on. Do it again for a host that was off for too long.
    """
    from usbdra.cli.kubectl import hosts
    from usbdra.errors import ConfigError
    from usbdra.slices.outside import check_host

    check_host(host)
    if (csr is None) is (with_key is None):
        raise ConfigError(
            f"give --csr FILE with what `usbdra pki request {host}` printed there, or "
            "--with-key DIRECTORY to make the key here"
        )
    names = contract(invocation)
    request = hosts.read(host, csr) if csr is not None else None
    made = None if request is not None else hosts.make(host)
    pem = request or (made.pem if made is not None else b"")

    async def work(client: KubeClient) -> Signed:
        await hosts.put(client, names, host, address)
        return await hosts.signed(client, names, host, pem, driver_namespace)

    signed = ask(config, work, timeout=60.0)
    if made is not None and with_key is not None:
        hosts.write_files(with_key, made.key, signed)
        invocation.line(
            f"host {host}: tls.key, tls.crt and ca.crt are in {with_key}; move them to "
            "/etc/usbdra/pki there and delete them here, then run there: usbdra serve",
            {"host": host, "directory": str(with_key)},
        )
        return
    if invocation.machine:
        invocation.line("", {"host": host, "bundle": signed.bundle.decode()})
        return
    write(signed.bundle.decode())
    click.echo(
        f"host {host}: signed. There: usbdra pki accept FILE, with what was printed; then "
        "usbdra serve",
        err=True,
    )


@exporter_group.command("list")
@LISTING
@pass_invocation
def list_command(invocation: Invocation, config: Path | None) -> None:
    """List the hosts, whether they answer, and until when their certificates hold."""
    from usbdra.cli.kubectl import hosts

    names = contract(invocation)

    async def work(client: KubeClient) -> list[dict[str, object]]:
        return list((await client.list(names.host)).get("items") or ())

    found = ask(config, work)
    invocation.show(
        found,
        HEADERS,
        lambda wide: (hosts.row(item, wide) for item in found),
        WIDE,
        lambda: (hosts.full_name(item, names) for item in found),
    )


@exporter_group.command("remove")
@common()
@HOST
@click.option("--force", is_flag=True, help="Also while its devices are in use; they are lost.")
@pass_invocation
def remove_command(invocation: Invocation, config: Path | None, host: str, force: bool) -> None:
    """Remove a HOST: its devices are offered no more, and nobody is granted one."""
    from usbdra.cli.kubectl import hosts

    names = contract(invocation)

    async def work(client: KubeClient) -> None:
        if not force:
            await hosts.require_unused(client, names, host)
        await hosts.remove(client, names, host)

    ask(config, work)
    invocation.line(f"host {host}: removed", {"host": host, "done": True})


COMMANDS = (exporter_group,)
