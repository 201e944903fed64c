# SPDX-License-Identifier: Apache-2.0
"""`kubectl usb support-bundle`: the file that goes with a report.

Owns the file: made whole or not at all, readable by its maker alone.
"""

from __future__ import annotations

import io
import os
import tarfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from usbdra.cli.invocation import Invocation, pass_invocation
from usbdra.cli.kubectl import words
from usbdra.cli.kubectl.options import common, contract
from usbdra.cli.kubectl.session import ask
from usbdra.errors import ConfigError

if TYPE_CHECKING:
    from usbdra.cli.kubectl.bundle import Collector
    from usbdra.kube.client import KubeClient

README = """A support bundle of usbdra, made at {now} by version {version}.

objects/      what the API holds of the driver; in place of what may be secret: {removed}
logs/         of the driver's containers, the last {hours} h of each
ports.json    ports of each node and hub, and the claims that have them
versions.json of this program, the API server and the images
missing.txt   what could not be read, and why

Secrets and ConfigMaps were not read. Names of nodes, namespaces, pods and devices, serial numbers
and addresses of nodes are in here: look through it before you give it away.
"""


@click.command("support-bundle")
@common()
@click.option(
    "-f", "--file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Default: usb-support-TIME.tar.gz here.",
)  # fmt: skip
@click.option(
    "--driver-namespace", default="usbdra", show_default=True, metavar="NAMESPACE",
    help="Where the driver is installed.", shell_complete=words.namespaces,
)  # fmt: skip
@click.option("--node", multiple=True, metavar="NODE", help="Logs of this node alone; repeatable.")
@click.option(
    "--hours", type=click.IntRange(1, 8760), default=24, show_default=True, help="How old logs."
)
@pass_invocation
def support_bundle_command(
    invocation: Invocation,
    config: Path | None,
    file: Path | None,
    driver_namespace: str,
    node: tuple[str, ...],
    hours: int,
) -> None:
    """Write a tar.gz of what helps to find a fault: objects, logs, ports, versions; no secrets."""
    from usbdra.cli.kubectl.bundle import Collector, Wanted

    now = time.gmtime()
    path = file or Path(time.strftime("usb-support-%Y%m%d-%H%M%S.tar.gz", now))
    names = contract(invocation)
    wanted = Wanted(driver_namespace, frozenset(node), hours)

    async def work(client: KubeClient) -> list[str]:
        collector = Collector(client, names, wanted)
        await _write(path, collector, time.strftime("%Y-%m-%dT%H:%M:%SZ", now))
        return collector.missing

    missing = ask(config, work, timeout=60.0)
    for line in missing:
        click.echo(f"left out: {line}", err=True)
    invocation.line(str(path), {"file": str(path), "missing": missing})


async def _write(path: Path, collector: Collector, now: str) -> None:
    """Raises ConfigError when the file is there already, OSError when it cannot be written."""
    from usbdra import __version__
    from usbdra.cli.kubectl.redact import REMOVED

    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise ConfigError(f"{path} exists; name another file with -f") from None
    folder = path.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
    hours = collector.wanted.hours
    try:
        with os.fdopen(fd, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
            text = README.format(now=now, version=__version__, removed=REMOVED, hours=hours)
            _add(archive, f"{folder}/README.txt", text)
            async for name, content in collector.files():
                _add(archive, f"{folder}/{name}", content)
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise


def _add(archive: tarfile.TarFile, name: str, text: str) -> None:
    data = text.encode()
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
    archive.addfile(entry, io.BytesIO(data))


COMMANDS = (support_bundle_command,)
