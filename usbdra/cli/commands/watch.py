# SPDX-License-Identifier: Apache-2.0
"""`usbdra watch`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from usbdra.cli import parts, views
from usbdra.cli.group import common_options
from usbdra.cli.invocation import LINE_FORMATS, Invocation, pass_invocation

if TYPE_CHECKING:
    from usbdra.config import Settings
    from usbdra.discovery.snapshot import Snapshot
    from usbdra.types import Offer


@click.command("watch")
@common_options(LINE_FORMATS)
@pass_invocation
def watch_command(invocation: Invocation) -> None:
    """Print every change of the node's devices as it happens, the present ones first."""
    from usbdra.stopping import until_told

    settings = invocation.live_settings()
    asyncio.run(until_told(_watch(invocation, settings), "watch"))


async def _watch(invocation: Invocation, settings: Settings) -> None:
    from usbdra.discovery import tree
    from usbdra.discovery.inventory import Inventory
    from usbdra.discovery.live import LiveInventory

    with parts.uevents() as events:
        inventory = Inventory(
            settings.root, node=parts.node_name(settings), policy=parts.policy(settings)
        )
        live = LiveInventory(inventory, events, poke=tree.poke)
        changes = live.watch()
        async with asyncio.TaskGroup() as group:
            group.create_task(live.run())
            async for change in changes:
                for what, offer in differences(change.old, change.new):
                    _tell(invocation, what, offer)


def differences(old: Snapshot, new: Snapshot) -> list[tuple[str, Offer]]:
    """(`added`, `removed` or `changed`, the offer), removed ones first, in order of names."""
    before = {offer.name: offer for offer in old.offers}
    after = {offer.name: offer for offer in new.offers}
    gone = [("removed", before[name]) for name in sorted(before.keys() - after.keys())]
    came = [
        ("changed" if name in before else "added", after[name])
        for name in sorted(after)
        if before.get(name) != after[name]
    ]
    return gone + came


def _tell(invocation: Invocation, what: str, offer: Offer) -> None:
    cells = views.device_row(offer, wide=False)
    note = f" ({offer.reason})" if offer.reason else ""
    text = f"{what:8} {'  '.join(cell for cell in cells[:4] if cell)}{note}"
    invocation.line(text, {"event": what, "device": views.device(offer)})
