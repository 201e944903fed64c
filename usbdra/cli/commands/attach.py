# SPDX-License-Identifier: Apache-2.0
"""`usbdra attach` and `usbdra detach`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from usbdra.cli import parts, views
from usbdra.cli.completions import complete_port
from usbdra.cli.group import TCP_PORT, common_options
from usbdra.cli.invocation import Invocation, pass_invocation

if TYPE_CHECKING:
    from usbdra.config import Settings
    from usbdra.importer.dial import Link
    from usbdra.types import Attachment, Port, PortId, RemoteDevice, UsbDevice

_PHASES = {
    "connect": "connected",
    "tls": "encrypted and authenticated",
    "clear": "authenticated, NOT encrypted",
    "authorise": "device granted",
    "attach": "given to the kernel",
    "enumerate": "device enumerated",
    "settle": "drivers and nodes ready",
}


@click.command("attach")
@common_options()
@click.argument("host")
@click.argument("device")
@click.option("--port", type=TCP_PORT, help="TCP port of the exporter, 3241; with --plain 3240.")
@click.option("--plain", is_flag=True, help="No encryption: for stock peers.")
@pass_invocation
def attach_command(
    invocation: Invocation, host: str, device: str, port: int | None, plain: bool
) -> None:
    """Use DEVICE (name, bus id or serial) of HOST as if it were plugged in here.

    Returns when the device and the nodes of its drivers are usable.
    """
    settings = invocation.live_settings()
    found = asyncio.run(_attach(invocation, settings, host, device, port, plain))
    invocation.show(
        views.attachment(found),
        ("PORT", "HUB", "BUSID", "NODE", "CHILDREN"),
        lambda wide: [_row(found)],
    )
    for text in found.unsettled:
        click.echo(f"usbdra: {text}", err=True)


def _row(found: Attachment) -> tuple[str, ...]:
    children = " ".join(child.path for child in found.children)
    device = found.device
    return str(found.port), found.hub.value, device.busid, device.node_path, children


async def _attach(
    invocation: Invocation,
    settings: Settings,
    host: str,
    device: str,
    port: int | None,
    plain: bool,
) -> Attachment:
    from usbdra.importer.attach import Attacher
    from usbdra.importer.dial import dial

    def progress(phase: str, seconds: float) -> None:
        if not invocation.machine:
            print(f"{seconds:7.3f} s  {_PHASES.get(phase, phase)}", file=sys.stderr, flush=True)

    vhci = parts.vhci(settings)
    vhci.table()  # a kernel that cannot import is told before anyone is dialled
    with parts.uevents() as events:
        link = await dial(
            host,
            port or (settings.plain_port if plain else settings.port),
            identity=None if plain else parts.identity(settings),
            plain=plain,
            encryption=parts.encryption(settings),
            progress=progress,
        )
        async with link:
            remote = await _ask(link, device, plain, parts.node_name(settings))
            return await Attacher(vhci, events, root=settings.root).attach(
                link.take_socket(), remote, timings=link.timings, progress=progress
            )


async def _ask(link: Link, device: str, plain: bool, node: str) -> RemoteDevice:
    """The grant; a word that is neither name nor bus id may be a serial, which the list tells."""
    from usbdra.errors import Ambiguous, NotFound, UsbdraError
    from usbdra.types import BusId
    from usbdra.usbip.extension import is_device_key

    if plain:
        return await link.import_stock(BusId(device))
    holder = f"usbdra attach on {node}"
    missing: UsbdraError = NotFound(f"{link.host} exports no device {device!r}")
    if is_device_key(device):
        try:
            return await link.grant(device, holder=holder)
        except NotFound as error:
            missing = error
    alike = [one for one in await link.inventory() if one.serial == device]
    if len(alike) > 1:
        raise Ambiguous(device, tuple(one.name or one.busid for one in alike))
    if not alike:
        raise missing
    return await link.grant(alike[0].name or alike[0].busid, holder=holder)


@click.command("detach")
@common_options(("table", "json"))
@click.argument("port", metavar="PORT|DEVICE", shell_complete=complete_port)
@pass_invocation
def detach_command(invocation: Invocation, port: str) -> None:
    """Give the device on PORT back, or the attached DEVICE: bus id here, stable name or serial.

    Returns when the port is free again. The exporter gives the device to its own driver.
    """
    settings = invocation.live_settings()
    number, detached = asyncio.run(_detach(settings, port))
    text = f"port {number} is free" + ("" if detached else " already")
    invocation.line(text, {"port": number, "detached": detached})


async def _detach(settings: Settings, port: str) -> tuple[int, bool]:
    """The port, and whether there was something on it: a device that went by itself is no error."""
    from usbdra.types import PortState
    from usbdra.vhci.waiting import Waiter

    vhci = parts.vhci(settings)
    rows = vhci.table().ports
    number = _port_of(port, rows, settings)
    if next(row.state for row in rows if row.port == number) is PortState.FREE:
        return number, False
    with parts.uevents() as events:
        async with Waiter(events) as waiter:
            await vhci.detach(number, waiter)
    return number, True


def _port_of(word: str, rows: Sequence[Port], settings: Settings) -> PortId:
    """The port that a number or a word for its device means. Raises NotFound, Ambiguous.

    A serial may look like a port's number: the port wins.
    """
    from usbdra.errors import Ambiguous, NotFound
    from usbdra.types import BusId, PortId

    ports = {row.local_busid: row.port for row in rows if row.local_busid}
    if word in ports:
        return ports[BusId(word)]
    if word.isdecimal() and len(word) < 6 and int(word) in {row.port for row in rows}:
        return PortId(int(word))
    found = [device for device in _attached(settings) if device.busid in ports]
    alike = [device.busid for device in found if word in _words(device)]
    if len(alike) > 1:
        raise Ambiguous(word, tuple(alike))
    if alike:
        return ports[alike[0]]
    if word.isdecimal():
        raise NotFound(f"no port {word}; this node has {len(rows)}")
    raise NotFound(f"no attached device {word!r}; `usbdra ports --used` lists them")


def _attached(settings: Settings) -> list[UsbDevice]:
    return [device for device in parts.snapshot(settings).devices if device.imported]


def _words(device: UsbDevice) -> set[str]:
    """What a device is called on any node: its serial, and its name if that is made of it."""
    from usbdra.discovery.names import identity_of, serial_name

    identity = identity_of(device)
    return {device.serial or "", serial_name(identity)} if identity else set()
