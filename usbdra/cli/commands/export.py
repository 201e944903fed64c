# SPDX-License-Identifier: Apache-2.0
"""`usbdra bind` and `usbdra unbind`: a device made ready for export by hand."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from usbdra.cli import parts
from usbdra.cli.completions import complete_local
from usbdra.cli.group import common_options
from usbdra.cli.invocation import Invocation, pass_invocation

if TYPE_CHECKING:
    from usbdra.config import Settings
    from usbdra.discovery.uevent import UeventHub
    from usbdra.exporter.bind import Binder


def binder(settings: Settings, events: UeventHub) -> Binder:
    """The one who binds, asking anew each time what the host does with a device."""
    from functools import partial

    from usbdra.discovery.hostuse import holder_of
    from usbdra.exporter.bind import Binder

    return Binder(
        settings.root,
        events=events,
        in_use=partial(holder_of, settings.root),
        journal=settings.run_dir / "exports",
    )


@click.command("bind")
@common_options(("table", "json"))
@click.argument("device", shell_complete=complete_local)
@pass_invocation
def bind_command(invocation: Invocation, device: str) -> None:
    """Take DEVICE (name, bus id or serial) from its host driver so that it can be exported.

    `usbdra serve` binds by itself on demand; this keeps a device bound. It stays so until
    `usbdra unbind`.
    """
    settings = invocation.live_settings()
    offer = parts.snapshot(settings).find(device)
    if not offer.exportable:
        from usbdra.errors import Refused

        raise Refused(f"device {offer.name} is not offered: {offer.reason}")

    async def work() -> None:
        with parts.uevents() as events:
            await binder(settings, events).bind(offer.device.busid, pinned=True)

    asyncio.run(work())
    invocation.line(
        f"{offer.name} ({offer.device.busid}) is bound to usbip-host",
        {"name": offer.name, "busID": offer.device.busid, "bound": True},
    )


@click.command("unbind")
@common_options(("table", "json"))
@click.argument("device", shell_complete=complete_local)
@pass_invocation
def unbind_command(invocation: Invocation, device: str) -> None:
    """Give DEVICE (name, bus id or serial) back to its host driver; ends its session."""
    settings = invocation.live_settings()
    offer = parts.snapshot(settings).find(device)

    async def work() -> None:
        with parts.uevents() as events:
            await binder(settings, events).release(offer.device.busid)

    asyncio.run(work())
    invocation.line(
        f"{offer.name} ({offer.device.busid}) is back with its host driver",
        {"name": offer.name, "busID": offer.device.busid, "bound": False},
    )
