# SPDX-License-Identifier: Apache-2.0
"""Noticing that prepared claims have lost devices: by the end of a link, or by a look at all.

Owns the answer "which claims lack something now" and tells it. Must not attach anything again
(prepare.py `restore`) and keeps no time.
"""

from __future__ import annotations

from usbdra.plugin.acts import Acts
from usbdra.plugin.locks import NodeLock
from usbdra.plugin.records import Records
from usbdra.plugin.telling import Telling
from usbdra.state.claims import ClaimRecord, ClaimRef, Phase, Route
from usbdra.types import ClaimUid, Endpoints


class Losses:
    """The losses of one node's claims."""

    def __init__(self, records: Records, acts: Acts, telling: Telling, node_lock: NodeLock) -> None:
        self._node_lock = node_lock
        self._records = records
        self._acts = acts
        self._telling = telling

    def link_ended(self, link: Endpoints) -> ClaimRef | None:
        """The claim whose device used this connection, None when none did."""
        for record in self._records.all().values():
            keys = [d.key for d in record.devices if d.held is not None and d.held.link == link]
            if keys and record.phase is Phase.PREPARED:
                self._telling.lost(record, keys)
                self._telling.start(self._acts.out_of_reach(record, keys))
                return record.ref
        return None

    async def check(self) -> list[ClaimRef]:
        """All prepared claims that lack a device now.

        What seems lost is looked at again with the records as they are on disk: during an upgrade
        another agent of this node may have attached it anew (R42).
        """
        if not await self._lacking():
            return []
        async with self._node_lock.hold():
            lacking = await self._lacking()
        for record, keys in lacking:
            self._telling.lost(record, keys)
            await self._acts.out_of_reach(record, keys)
        return [record.ref for record, _ in lacking]

    async def _lacking(self) -> list[tuple[ClaimRecord, tuple[tuple[str, int], ...]]]:
        found = []
        for uid, record in self._records.all().items():
            if record.phase is not Phase.PREPARED:
                continue
            keys = await self._acts.lost(record)
            # A claim that was changed during the look is somebody else's work just now.
            if keys and self._records.get(uid) == record:
                found.append((record, keys))
        return found

    def lacks_local(self, uid: ClaimUid) -> bool:
        """Whether the claim waits for a device to be plugged into this node."""
        record = self._records.get(uid)
        devices = record.devices if record is not None else ()
        return any(d.route is Route.DIRECT and d.held is None for d in devices)
