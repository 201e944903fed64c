# SPDX-License-Identifier: Apache-2.0
"""The claims of this node in memory, and on disk before anything of them exists.

Owns the one copy that prepare works on, and the answer to "who has this device". What a kill may
forget is kept in memory alone until the next write: a claim of which nothing exists yet, and what
a device turned out to be whose intent is on disk. Disk work is done in a thread; writes of one
claim never overtake each other (threads.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from usbdra.errors import DeviceBusy
from usbdra.plugin.threads import in_thread
from usbdra.state.claims import ClaimRecord, ClaimRef, DeviceRecord
from usbdra.state.store import SetAside
from usbdra.tracing.spans import spanned
from usbdra.types import ClaimUid


class Store(Protocol):
    """What of state/store.py `RecordStore` is used here; all methods block and raise StateError."""

    def save(self, name: str, record: ClaimRecord) -> None:
        """Write one record durably, or raise and leave the old one."""

    def load_all(self) -> tuple[dict[str, ClaimRecord], list[SetAside]]:
        """All records, and the files that could not be understood."""
        ...

    def delete(self, name: str) -> None:
        """Remove one record; none is no error."""


class Records:
    """Claim records by UID."""

    def __init__(self, store: Store, on_change: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._on_change = on_change
        self._claims: dict[ClaimUid, ClaimRecord] = {}
        self._on_disk: set[ClaimUid] = set()
        self._bad: list[SetAside] = []

    async def load(self) -> None:
        """Read all records from disk.

        Files that cannot be used are kept for `take_set_aside`; a record that is known here
        already outlives the damage of its file.
        """
        found, bad = await in_thread(self._store.load_all)
        known = {ClaimUid(b.name): self._claims.get(ClaimUid(b.name)) for b in bad}
        self._claims = {ClaimUid(name): record for name, record in found.items()}
        self._on_disk = set(self._claims)
        self._bad += bad
        for record in known.values():
            if record is not None:
                await self.put(record)
        self._on_change()

    def take_set_aside(self) -> Sequence[SetAside]:
        """The files that `load` could not use since the last call."""
        bad, self._bad = self._bad, []
        return bad

    def get(self, uid: ClaimUid) -> ClaimRecord | None:
        """The claim's record, None when this node has nothing of it."""
        return self._claims.get(uid)

    def all(self) -> Mapping[ClaimUid, ClaimRecord]:
        """Every record; a copy."""
        return dict(self._claims)

    def holder(self, device: DeviceRecord, *, but: ClaimUid) -> ClaimRef | None:
        """The other claim that has this device exclusively."""
        for record in self._claims.values():
            if record.ref.uid != but and any(_same(device, other) for other in record.devices):
                return record.ref
        return None

    def add(self, record: ClaimRecord) -> None:
        """Take in a new claim and with it its devices out of others' reach; not on disk yet.

        The check and the claim are one step: of two that come together one gets the device.
        Raises DeviceBusy naming the holder.
        """
        uid = record.ref.uid
        for device in record.devices:
            holder = self.holder(device, but=uid)
            if device.exclusive and holder is not None:
                raise DeviceBusy(device.name, str(holder))
        self.note(record)

    def note(self, record: ClaimRecord) -> None:
        """Replace the record in memory; a kill forgets it, until the next `put`."""
        self._claims[record.ref.uid] = record
        self._on_change()

    def on_disk(self, uid: ClaimUid) -> bool:
        """Whether a start after a kill would know of the claim."""
        return uid in self._on_disk

    @spanned("record")
    async def put(self, record: ClaimRecord) -> None:
        """Replace the record. Raises StateError; memory and disk then say what they said."""
        await in_thread(self._store.save, record.ref.uid, record)
        self._on_disk.add(record.ref.uid)
        self.note(record)

    @spanned("forget")
    async def drop(self, uid: ClaimUid) -> None:
        """Forget the claim. Raises StateError; the claim is then still on record."""
        await in_thread(self._store.delete, uid)
        self._on_disk.discard(uid)
        self._claims.pop(uid, None)
        self._on_change()


def _same(one: DeviceRecord, other: DeviceRecord) -> bool:
    return other.exclusive and (one.node, one.name) == (other.node, other.name)
