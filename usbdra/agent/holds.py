# SPDX-License-Identifier: Apache-2.0
"""Which ports of this node are in use under which name, so that a device keeps its identity.

Owns what the inventory holds: devices of this node's own claims, by their records, and devices
that other nodes have, by their sessions. A device that re-enumerates as another one (a boot
loader, firmware that was just loaded) is not offered as free while the old claim lives (R32):
a session that ended is remembered, since the exporter cannot tell a lost link from a claim that
is over. Only when a stranger shows up at its port is the API asked, with growing pauses, whether
the claim still lives. Must not end or make any use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from usbdra.discovery.snapshot import Snapshot
from usbdra.state.claims import ClaimRecord, Route
from usbdra.state.exports import Session
from usbdra.types import DeviceName

FIRST_PAUSE, LONGEST_PAUSE = 5.0, 60.0


class Inventory(Protocol):
    """What of discovery/inventory.py is used here."""

    @property
    def snapshot(self) -> Snapshot:
        """The devices now."""
        ...

    def hold(self, held: Mapping[str, DeviceName]) -> None:
        """Set which ports (by syspath) are in use under which name."""
        ...


@dataclass(frozen=True, slots=True)
class _Use:
    name: DeviceName
    session: Session
    over: bool = False


class Holds:
    """See module. `changed` is called after the inventory was told; `outlived` as in
    exporter/local.py. Run `run`; all else is on its loop."""

    def __init__(
        self,
        inventory: Inventory,
        records: Callable[[], Iterable[ClaimRecord]],
        outlived: Callable[[DeviceName, Session], Awaitable[bool]],
        changed: Callable[[], None],
        *,
        pauses: tuple[float, float] = (FIRST_PAUSE, LONGEST_PAUSE),
    ) -> None:
        self._inventory = inventory
        self._records = records
        self._outlived = outlived
        self._changed = changed
        self._pauses = pauses
        self._uses: dict[str, _Use] = {}
        self._told: dict[str, DeviceName] = {}
        self._news = asyncio.Event()

    def taken(self, syspath: str, name: DeviceName, session: Session) -> None:
        """Another node has the device of this port from now on."""
        self._uses[syspath] = _Use(name, session)
        self.apply()

    def left(self, syspath: str) -> None:
        """The session is over; with a claim behind it the port stays its device's."""
        use = self._uses.pop(syspath, None)
        if use is not None and use.session.claim is not None:
            self._uses[syspath] = replace(use, over=True)
        self.apply()

    def apply(self) -> None:
        """Tell the inventory, if sessions or records make a difference to it."""
        held = {syspath: use.name for syspath, use in self._uses.items()}
        held.update(_of_claims(self._records()))
        if held != self._told:
            self._told = held
            self._inventory.hold(held)
            self._changed()
        self._news.set()

    def devices_changed(self) -> None:
        """The node's devices are not what they were: a stranger may be among them."""
        self._news.set()

    async def run(self) -> None:
        """Free the ports of strangers whose claims are over, until cancelled."""
        first, longest = self._pauses
        pause = first
        while True:
            self._news.clear()
            strangers = list(self._strangers())
            for syspath, use in strangers:
                if await self._outlived(use.name, use.session) and self._uses[syspath] is use:
                    del self._uses[syspath]
                    self.apply()
            if not strangers:
                pause = first
            try:
                async with asyncio.timeout(pause if strangers else None):
                    await self._news.wait()
            except TimeoutError:
                pause = min(pause * 2, longest)

    def _strangers(self) -> Iterator[tuple[str, _Use]]:
        """Ports whose session is over and that have another device now."""
        for offer in self._inventory.snapshot.offers:
            use = self._uses.get(offer.device.syspath)
            if use is not None and use.over and use.name != offer.name:
                yield offer.device.syspath, use


def _of_claims(records: Iterable[ClaimRecord]) -> Iterator[tuple[str, DeviceName]]:
    for record in records:
        for device in record.devices:
            if device.route is Route.DIRECT and device.syspath:
                yield device.syspath, device.name
