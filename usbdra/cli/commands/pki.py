# SPDX-License-Identifier: Apache-2.0
"""`usbdra pki`: certificates for machines that are in no cluster."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from usbdra.cli.group import HELP, HelpingGroup, common_options
from usbdra.cli.invocation import Invocation, pass_invocation

if TYPE_CHECKING:
    from usbdra.pki.commands import CertificateSummary

MAX_BUNDLE = 64 * 1024
"""Bytes of what a cluster signed; read_certificates tells what is none."""
_HEADERS = ("NAME", "KIND", "DAYS LEFT", "HOSTS", "FILE")
_WIDE = ("SERIAL", "SHA-256")

_directory = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the CA is; default the setting pkiDir, /etc/usbdra/pki.",
)
_keys = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the key is; default the setting pkiDir, /etc/usbdra/pki.",
)
_force = click.option("--force", is_flag=True, help="Replace what is there.")


@click.group("pki", cls=HelpingGroup, context_settings=HELP)
def pki_command() -> None:
    """Make and show certificates for nodes without a cluster, and of hosts outside one.

    \b
    usbdra pki init                  on one machine: makes the CA
    usbdra pki issue a --host 10.0.0.5
                                     there: a certificate for node a; copy the printed
                                     directory's files to /etc/usbdra/pki on a
    """


@pki_command.command("init")
@common_options()
@_directory
@click.option("--days", type=click.IntRange(1, 36500), help="Valid for so many days.")
@_force
@pass_invocation
def init_command(
    invocation: Invocation, directory: Path | None, days: int | None, force: bool
) -> None:
    """Make a CA. Its key never leaves the directory."""
    from usbdra.pki import authority, commands

    target = directory or invocation.live_settings().pki_dir
    made = commands.init(target, days=days or authority.CA_DAYS, force=force)
    _show(invocation, [made])


@pki_command.command("issue")
@common_options()
@click.argument("node")
@_directory
@click.option("--host", multiple=True, metavar="NAME|ADDRESS", help="What NODE is dialled by.")
@click.option("--days", type=click.IntRange(1, 3650), help="Valid for so many days.")
@_force
@pass_invocation
def issue_command(
    invocation: Invocation,
    node: str,
    directory: Path | None,
    host: tuple[str, ...],
    days: int | None,
    force: bool,
) -> None:
    """Sign a certificate for NODE with the CA."""
    from usbdra.pki import authority, commands

    target = directory or invocation.live_settings().pki_dir
    days = days or authority.NODE_DAYS
    _show(invocation, [commands.issue(target, node, hosts=host, days=days, force=force)])


@pki_command.command("request")
@common_options()
@click.argument("host")
@_keys
@pass_invocation
def request_command(invocation: Invocation, host: str, directory: Path | None) -> None:
    """Print a request for the certificate of this HOST, which is outside a cluster.

    The key is made here, once, and stays. `kubectl usb exporter add HOST --csr FILE` has the
    request signed, `usbdra pki accept` takes in what that prints.
    """
    from usbdra.cli.invocation import write
    from usbdra.pki import hostfiles
    from usbdra.slices.outside import check_host

    check_host(host)
    target = directory or invocation.live_settings().pki_dir
    write(hostfiles.request(target, host).decode())


@pki_command.command("accept")
@common_options()
@click.argument("file", type=click.File("rb"))
@_keys
@pass_invocation
def accept_command(invocation: Invocation, file: BinaryIO, directory: Path | None) -> None:
    """Take in the certificate that a cluster signed for this host (FILE, - for standard input).

    `usbdra serve` uses it from the next connection on.
    """
    from usbdra.pki import commands, hostfiles

    target = directory or invocation.live_settings().pki_dir
    path = hostfiles.accept(target, file.read(MAX_BUNDLE + 1), datetime.now(UTC), file.name)
    _show(invocation, commands.show(path))


@pki_command.command("show")
@common_options()
@click.argument("path", type=click.Path(path_type=Path), required=False)
@pass_invocation
def show_command(invocation: Invocation, path: Path | None) -> None:
    """Show the certificates in PATH (a file or directory), by default the setting pkiDir."""
    from usbdra.pki import commands

    _show(invocation, commands.show(path or invocation.live_settings().pki_dir))


def _show(invocation: Invocation, found: list[CertificateSummary]) -> None:
    now = datetime.now(UTC)
    invocation.show(
        [_json(one, now) for one in found],
        _HEADERS,
        lambda wide: (_row(one, now, wide) for one in found),
        _WIDE,
    )


def _json(one: CertificateSummary, now: datetime) -> dict[str, Any]:
    return {
        "file": str(one.path),
        "kind": "ca" if one.is_ca else "node",
        "node": one.node,
        "hosts": list(one.hosts),
        "subject": one.subject,
        "serial": one.serial,
        "notBefore": one.not_before.isoformat(),
        "notAfter": one.not_after.isoformat(),
        "daysLeft": one.days_left(now),
        "sha256": one.fingerprint,
    }


def _row(one: CertificateSummary, now: datetime, wide: bool) -> tuple[str, ...]:
    kind = "CA" if one.is_ca else "node"
    name = one.node or one.subject
    row = (name, kind, str(one.days_left(now)), ",".join(one.hosts), str(one.path))
    return (*row, one.serial, one.fingerprint) if wide else row
