# SPDX-License-Identifier: Apache-2.0
"""How many ports this node offers to claims, and whether one is left for the agent's own choice.

Owns the joining of the kernel's rows with the claims' records. The scheduler counts the ports of
claims that ask for one; ports that the agent takes by itself, for a device alone, are taken off
what is published, and those in foreign hands too. Must not write anything.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from usbdra.errors import KernelUnsupported, NoFreePort
from usbdra.plugin.contracts import Order
from usbdra.slices.build import parse_link
from usbdra.slices.capacity import claimable
from usbdra.state.claims import ClaimRecord, Route
from usbdra.types import ClaimUid, Hub, PortId, PortState
from usbdra.vhci.driver import VhciTable

log = logging.getLogger(__name__)

_TAKEN = (PortState.USED, PortState.ATTACHING, PortState.STOPPING)


class Records(Protocol):
    """What of plugin/records.py is read here."""

    def get(self, uid: ClaimUid) -> ClaimRecord | None:
        """See Records.get."""

    def all(self) -> Mapping[ClaimUid, ClaimRecord]:
        """See Records.all."""
        ...


class PortCount:
    """The ports of one node. `limit`: at most so many of each hub for claims, None for all."""

    def __init__(
        self, table: Callable[[], VhciTable], records: Records, limit: int | None, node: str
    ) -> None:
        self._table = table
        self._records = records
        self._limit = limit
        self._node = node

    def published(self) -> Mapping[Hub, int]:
        """Ports that the scheduler may give away; none where the kernel has none."""
        try:
            offered = self._offered()
        except KernelUnsupported as error:
            log.warning("no ports are published: %s", error, extra={"once": "no ports"})
            return {}
        own_choice: Counter[Hub] = Counter()
        for record in self._records.all().values():
            own_choice += uncounted(record)
        return {hub: max(0, count - own_choice[hub]) for hub, count in offered.items()}

    def check(self, order: Order) -> None:
        """Raise NoFreePort when the agent is to choose a port itself and claims have them all.

        A port that the scheduler has given away is there, or the kernel's rows will say so.
        """
        record = self._records.get(order.claim.uid)
        if record is None or order.hub is None or not uncounted(record)[order.hub]:
            return
        offered = self._offered().get(order.hub, 0)
        used = sum(
            1
            for other in self._records.all().values()
            for device in other.devices
            if device.hub is order.hub
            and (device.held or device.intent)
            # its own, when a lost device is brought back
            and (other.ref.uid, device.name) != (order.claim.uid, order.name)
        )
        if used >= offered:
            raise NoFreePort(order.hub.value, used, offered, self._node)

    def states(self) -> dict[tuple[str, str], int]:
        """Ports by hub and what they are: `free` for claims, of `claims`, in `foreign` hands, or
        `withheld`: broken, or beyond the limit. Nothing where the kernel has none."""
        try:
            table, offered = self._table(), self._offered()
        except KernelUnsupported:
            return {}
        ours = _ports_of(self._records.all().values())
        found: dict[tuple[str, str], int] = {}
        for hub, count in table.hubs.items():
            taken = [p.port in ours for p in table.ports if p.hub is hub and p.state in _TAKEN]
            claims, foreign = taken.count(True), taken.count(False)
            free = max(0, offered.get(hub, 0) - claims)
            states = {"free": free, "claims": claims, "foreign": foreign}
            states["withheld"] = max(0, count.total - sum(states.values()))
            found |= {(hub.value, state): number for state, number in states.items()}
        return found

    def _offered(self) -> Mapping[Hub, int]:
        table, ours = self._table(), _ports_of(self._records.all().values())
        foreign: Counter[Hub] = Counter()
        for port in table.ports:
            if port.state in _TAKEN and port.hub is not None and port.port not in ours:
                foreign[port.hub] += 1
        return claimable(table.hubs, self._limit, foreign)


def uncounted(record: ClaimRecord) -> Counter[Hub]:
    """Ports of a claim that it did not ask for: the agent's own choice, by hub."""
    needed = Counter(d.hub for d in record.devices if d.route is Route.VHCI and d.hub is not None)
    names = [link.device for link in record.links] + [device.device for device in record.devices]
    allocated = [link for link in map(parse_link, names) if isinstance(link, Hub)]
    return needed - Counter(allocated)


def _ports_of(records: Collection[ClaimRecord]) -> frozenset[PortId]:
    """Ports that our claims have or are about to have: their intent is on record."""
    held = {d.held.port for r in records for d in r.devices if d.held and d.held.port is not None}
    return frozenset(held | {d.intent.port for r in records for d in r.devices if d.intent})
