# SPDX-License-Identifier: Apache-2.0
"""Keeps devices on a node whose kernel cannot export them, for pods of the node itself.

Owns the question whether usbip-host is there, asked at the start and whenever the kernel tells of
a module. Agents run on such nodes only where the chart's agent.localOnly says so. Must not load
anything (nodesetup/ does).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from usbdra import kmod
from usbdra.discovery.uevent import UeventHub
from usbdra.vhci import layout

MODULE = "usbip_host"
_LOOKS, _PAUSE_SECONDS = 100, 0.05
REASON = "this node's kernel has no usbip-host to export it with: for pods of this node alone"


class Inventory(Protocol):
    """What of discovery/inventory.py is used here."""

    def stay(self, reason: str) -> None:
        """Keep every device on this node, and say why; "" lets them go."""


class HostModules:
    """`changed` is called after the inventory was told."""

    def __init__(self, root: Path, inventory: Inventory, changed: Callable[[], None]) -> None:
        self._root = root
        self._inventory = inventory
        self._changed = changed

    def look(self) -> None:
        """Ask now."""
        works = kmod.look(self._root, MODULE).state.works
        self._inventory.stay("" if works else REASON)

    async def run(self, hub: UeventHub) -> None:
        """Ask again at each event of a module, until the hub is closed.

        The kernel tells of vhci_hcd before it is whole, and of nothing when it is.
        """
        async with hub.subscribe() as events:
            self.look()  # subscribed first: what happens meanwhile is told after it
            self._changed()
            while batch := await events.batch():
                if any(event.subsystem in ("module", "") for event in batch):
                    await self._vhci_settled()
                    self.look()
                    self._changed()

    async def _vhci_settled(self) -> None:
        for _ in range(_LOOKS):
            if kmod.settled(self._root, layout.MODULE):
                return
            await asyncio.sleep(_PAUSE_SECONDS)
