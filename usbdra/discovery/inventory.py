# SPDX-License-Identifier: Apache-2.0
"""The one snapshot of a node's devices: made by a look at the tree, kept by events.

Owns which devices there are, their names and offers. An event costs a read of the device it
names and nothing else. Must not wait, keep time or talk to anyone: `live.py` drives it.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from usbdra.discovery import hostuse, names, tree
from usbdra.discovery.policy import Policy, is_candidate, make_offer
from usbdra.discovery.snapshot import Snapshot
from usbdra.types import BusId, DeviceName, Offer, Uevent, UsbDevice

if TYPE_CHECKING:
    from pathlib import Path

_READ_AGAIN = frozenset({"add", "change", "bind", "unbind"})
"""Actions after which a device is read; `remove` takes it away, any other means nothing."""

_HOLDING = frozenset({"block", "net", "input"})
"""Subsystems whose devices can make the host a user of the USB device above them."""

_Order = tuple[tuple[int, ...], str]


def scan(
    root: str | Path = "/",
    *,
    node: str,
    policy: Policy | None = None,
    ambiguous: Set[names.Identity] = frozenset(),
    held: Mapping[str, DeviceName] | None = None,
) -> Snapshot:
    """Look once at everything below `root`; an incomplete device is taken as it is.

    `ambiguous` and `held` as for `names.assign_names`. Raises OSError only when the list of
    devices itself cannot be had.
    """
    inventory = Inventory(root, node=node, policy=policy, ambiguous=ambiguous, held=held)
    inventory.resync()
    inventory.retry()
    return inventory.snapshot


def place_order(device: UsbDevice) -> tuple[int, ...]:
    """Sorts 1-2 before 1-10, and a hub before what hangs on it."""
    return device.busnum, *(int(n) for n in re.findall(r"[0-9]+", device.busid.partition("-")[2]))


@dataclass(slots=True)
class _Entry:
    device: UsbDevice
    order: _Order
    identity: names.Identity | None
    holder: str | None = None
    offer: Offer | None = None


class Inventory:
    """Devices by syspath, an index of identities, and those that are not ready yet.

    A new device whose reading is incomplete (its serial or node is still to come) is pending:
    not in the snapshot, read again at every event of it or its children, and once more by
    `retry()`, which takes it as it is. So no half device is ever shown, nor one twice.
    """

    def __init__(
        self,
        root: str | Path = "/",
        *,
        node: str,
        policy: Policy | None = None,
        ambiguous: Set[names.Identity] = frozenset(),
        held: Mapping[str, DeviceName] | None = None,
    ) -> None:
        self._root = tree.normal_root(root)
        self._node = node
        self._policy = policy or Policy()
        self._ambiguous = set(ambiguous)
        self._held = dict(held or {})
        self._stay = ""
        self._entries: dict[str, _Entry] = {}
        self._sorted: list[_Order] = []
        self._places: dict[names.Identity, set[str]] = {}
        self._children: dict[str, set[str]] = {}
        self._pending: dict[str, str] = {}
        self._stale: dict[str, None] = {}
        self._touched: set[str] = set()
        self._skipped: dict[str, str] = {}
        self._snapshot: Snapshot | None = None

    @property
    def root(self) -> str:
        """What stands before `/sys` and `/proc`; empty on the machine itself."""
        return self._root

    @property
    def snapshot(self) -> Snapshot:
        """The devices now. The same object as long as nothing changes."""
        if self._snapshot is None:
            entries = [self._entries[syspath] for _, syspath in self._sorted]
            self._snapshot = Snapshot(
                tuple(entry.device for entry in entries),
                tuple(entry.offer for entry in entries if entry.offer is not None),
                dict(self._skipped),
            )
        return self._snapshot

    @property
    def ambiguous(self) -> frozenset[names.Identity]:
        """Identities seen twice so far; the caller keeps them over restarts."""
        return frozenset(self._ambiguous)

    @property
    def pending(self) -> bool:
        """True while a device waits for `retry()`."""
        return bool(self._pending)

    @property
    def stale(self) -> bool:
        """True while `refresh()` has something to read."""
        return bool(self._stale or self._touched)

    def apply(self, events: Iterable[Uevent]) -> None:
        """Take in events in order; a device named several times is read once, at the end."""
        self.note(events)
        self.refresh()

    def note(self, events: Iterable[Uevent]) -> None:
        """Take in events in order: what comes and goes is known at once, the rest is put off.

        A driver that lets go of a device sends a dozen events, one after the other; one look at
        the end of them is as good as one for each, and takes nothing from who waits for it.
        """
        come: dict[str, None] = {}
        for event in events:
            syspath = f"/sys{event.devpath}"
            if event.action == "rescan":
                self.resync()
                return
            if event.devtype == "usb_device":
                if event.action == "remove":
                    self._remove(syspath)
                    come.pop(syspath, None)
                elif event.action in _READ_AGAIN:
                    self._to_read(syspath, come)
                continue
            owner = self._owner(syspath, come)
            if owner is None or owner in come:
                continue
            if event.devtype == "usb_interface" or owner in self._pending:
                self._to_read(owner, come)
            elif event.subsystem in _HOLDING:
                self._touched.add(owner)
        for syspath in come:
            self._read_again(syspath)
        if come:
            self._find_holders(set(come))

    def refresh(self) -> None:
        """Read what was put off."""
        stale, self._stale = self._stale, {}
        touched, self._touched = self._touched, set()
        for syspath in stale:
            self._read_again(syspath)
        self._find_holders(touched.union(stale))

    def resync(self) -> None:
        """Look at the whole tree: at the start, after lost events, or to check on them."""
        self._stale.clear()
        self._touched.clear()
        found = tree.enumerate_devices(self._root)
        present = {reading.device.syspath for reading in found.readings}
        for syspath in [*self._entries, *self._pending]:
            if syspath not in present:
                self._remove(syspath)
        for reading in found.readings:
            self._admit(reading)
        if self._skipped != found.skipped:
            self._skipped = found.skipped
            self._snapshot = None
        self._find_holders(present)

    def retry(self) -> None:
        """Read pending devices a last time and take them as they are; give up on the rest."""
        waiting, self._pending = self._pending, {}
        for syspath in waiting:
            try:
                self._put(tree.read(self._root, syspath).device)
            except (OSError, ValueError) as error:
                self._skip(syspath, str(error))
        self._find_holders(set(waiting))

    def refresh_holders(self) -> None:
        """Ask again what the host uses: mounts and routes change without a uevent."""
        self._find_holders(set(self._entries))

    def hold(self, held: Mapping[str, DeviceName]) -> None:
        """Set which ports (by syspath) are in use under which name."""
        changed = {s for s in {*held, *self._held} if held.get(s) != self._held.get(s)}
        self._held = dict(held)
        for syspath in changed & self._entries.keys():
            self._judge(self._entries[syspath])

    def stay(self, reason: str) -> None:
        """Keep every device on this node from now on, and say why; "" lets them go again."""
        if reason != self._stay:
            self._stay = reason
            for entry in self._entries.values():
                self._judge(entry)

    def _owner(self, syspath: str, come: Mapping[str, None]) -> str | None:
        """The known, pending or coming device at or nearest above a path."""
        while len(syspath) > len("/sys/devices"):
            if any(syspath in known for known in (self._entries, self._pending, come)):
                return syspath
            syspath = syspath.rpartition("/")[0]
        return None

    def _to_read(self, syspath: str, now: dict[str, None]) -> None:
        """Now if the device is new, else with the next `refresh`."""
        if syspath in self._entries:
            self._stale[syspath] = None
        else:
            now[syspath] = None

    def _read_again(self, syspath: str) -> None:
        try:
            self._admit(tree.read(self._root, syspath))
        except (OSError, ValueError) as error:
            # A known device that cannot be read is about to go: its `remove` decides.
            if syspath not in self._entries:
                self._pending[syspath] = str(error)

    def _admit(self, reading: tree.Reading) -> None:
        device = reading.device
        old = self._entries.get(device.syspath)
        if reading.complete or (old is not None and old.device.devnum == device.devnum):
            self._put(device)
        else:
            self._remove(device.syspath)
            self._pending[device.syspath] = "incomplete"

    def _put(self, device: UsbDevice) -> None:
        syspath = device.syspath
        self._pending.pop(syspath, None)
        if self._skipped.pop(device.busid, None) is not None:
            self._snapshot = None
        old = self._entries.get(syspath)
        if old is not None and old.device == device:
            return
        if old is not None:
            self._forget(old)
        candidate = is_candidate(device)
        entry = _Entry(
            device,
            (place_order(device), syspath),
            names.identity_of(device) if candidate else None,
            old.holder if old is not None else None,
        )
        self._entries[syspath] = entry
        insort(self._sorted, entry.order)
        self._children.setdefault(syspath.rpartition("/")[0], set()).add(syspath)
        self._snapshot = None
        if candidate:
            self._index(entry)
            self._judge(entry)

    def _index(self, entry: _Entry) -> None:
        """Note where an identity is; the second place renames the first."""
        if entry.identity is None:
            return
        places = self._places.setdefault(entry.identity, set())
        places.add(entry.device.syspath)
        if len(places) > 1 and entry.identity not in self._ambiguous:
            self._ambiguous.add(entry.identity)
            for syspath in places:
                self._judge(self._entries[syspath])

    def _judge(self, entry: _Entry) -> None:
        """Name a candidate and ask policy; a change makes a new snapshot."""
        if not is_candidate(entry.device):
            return
        held = self._held.get(entry.device.syspath)
        alone = entry.identity not in self._ambiguous
        name = names.choose_name(entry.device, node=self._node, alone=alone, held=held)
        offer = make_offer(
            self._policy, entry.device, name, holder=entry.holder, held=held, stay=self._stay
        )
        if offer != entry.offer:
            entry.offer = offer
            self._snapshot = None

    def _remove(self, syspath: str) -> None:
        """Take away a device and everything that hangs on it, pending ones too."""
        for child in tuple(self._children.get(syspath, ())):
            self._remove(child)
        for path in [p for p in self._pending if p == syspath or p.startswith(f"{syspath}/")]:
            del self._pending[path]
        if self._skipped.pop(syspath.rpartition("/")[2], None) is not None:
            self._snapshot = None
        self._stale.pop(syspath, None)
        self._touched.discard(syspath)
        entry = self._entries.pop(syspath, None)
        if entry is not None:
            self._forget(entry)
            self._snapshot = None

    def _forget(self, entry: _Entry) -> None:
        """Drop an entry from all indexes."""
        syspath = entry.device.syspath
        del self._sorted[bisect_left(self._sorted, entry.order)]
        parent = syspath.rpartition("/")[0]
        siblings = self._children[parent]
        siblings.discard(syspath)
        if not siblings:
            del self._children[parent]
        if entry.identity is not None:
            places = self._places[entry.identity]
            places.discard(syspath)
            if not places:
                del self._places[entry.identity]

    def _find_holders(self, syspaths: Set[str]) -> None:
        entries = [self._entries[s] for s in syspaths if s in self._entries]
        candidates = [e for e in entries if is_candidate(e.device)]
        if not candidates:
            return
        holders = hostuse.find_holders(self._root, (e.device for e in candidates))
        for entry in candidates:
            holder = holders.get(entry.device.busid)
            if holder != entry.holder:
                entry.holder = holder
                self._judge(entry)

    def _skip(self, syspath: str, reason: str) -> None:
        self._skipped[BusId(syspath.rpartition("/")[2])] = reason
        self._snapshot = None
