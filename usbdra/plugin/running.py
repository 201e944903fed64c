# SPDX-License-Identifier: Apache-2.0
"""What the running containers of claims may use: numbers they lost, and those that came instead.

Owns the translation of records into changes of containers, which numbers a claim must not have any
more, and when containers that were being made in the moment of a loss are looked for. A container
goes on without a restart when its device is back under other numbers; what it had is out of its
reach before anybody else is given the same number (R60). Must not touch containers itself
(containers/live.py does).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Protocol, TypeVar

from usbdra.containers.live import Gone, Problem, Wanted
from usbdra.containers.nodes import Node
from usbdra.containers.rules import DeviceNumber
from usbdra.errors import UsbdraError
from usbdra.plugin import layout
from usbdra.plugin.config import RESTART
from usbdra.plugin.records import Records
from usbdra.plugin.telling import Telling
from usbdra.plugin.threads import in_thread
from usbdra.state.claims import ClaimRecord, DeviceRecord
from usbdra.types import ClaimUid

T = TypeVar("T")

LATE: tuple[float, ...] = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0)
"""Seconds between looks for containers that are made from files of before a loss. No event tells
that a container has its claim and its device program; one is there after these four minutes or
never is, for the kubelet gives the runtime two for each of its calls (runtimeRequestTimeout)."""


class Containers(Protocol):
    """What of containers/live.py is used here; blocks for some milliseconds."""

    def update_claim(self, claim: ClaimUid, wanted: Mapping[str, Wanted]) -> list[Problem]:
        """Change the containers that have these requests of the claim."""
        ...

    def restart_claim(self, claim: ClaimUid, requests: Collection[str]) -> list[Problem]:
        """End the containers that have one of these requests."""
        ...


class Running:
    """See module. Without `containers` nothing is changed in what runs."""

    def __init__(
        self,
        containers: Containers | None,
        records: Records,
        telling: Telling,
        late: Sequence[float] = LATE,
    ) -> None:
        self._containers = containers
        self._records = records
        self._telling = telling
        self._lost: dict[ClaimUid, dict[Gone, str]] = {}
        self._told: dict[ClaimUid, set[str]] = {}
        self._due: dict[ClaimUid, set[str]] = {}
        self._turn = asyncio.Lock()
        self._late = late
        self._again: dict[ClaimUid, asyncio.Event] = {}

    async def take(self, record: ClaimRecord, devices: Iterable[DeviceRecord]) -> None:
        """Put these devices' numbers out of reach of the claim's containers. Never raises.

        Until `forget` they stay in mind: a container that was being made meanwhile is met by one
        of the looks that follow.
        """
        lost = {gone: device.base_request for device in devices for gone in _gone(device)}
        async with self._turn:
            self._lost.setdefault(record.ref.uid, {}).update(lost)
            await self._take_all(record)
        self.look_again(record)

    def look_again(self, record: ClaimRecord) -> None:
        """The claim's files have changed: look for containers of the old ones from now on."""
        uid = record.ref.uid
        if self._containers is None or not self._lost.get(uid):
            return
        if (again := self._again.get(uid)) is not None:
            again.set()
            return
        self._again[uid] = asyncio.Event()
        self._telling.start(self._keep_looking(record, self._again[uid]))

    async def give(self, record: ClaimRecord) -> None:
        """Let the claim's containers have what its record says, and nothing that it lost."""
        now = {gone for device in record.devices for gone in _gone(device)}
        given: dict[str, list[Node]] = {}
        for device in record.devices:
            if device.exclusive:
                given.setdefault(device.base_request, []).extend(_nodes(device))
        async with self._turn:
            lost = self._lost.get(record.ref.uid, {})
            for gone in now & lost.keys():
                del lost[gone]
            taken = dict(self._by_request(record.ref.uid))
            names = sorted({*taken, *given})
            wanted = {n: Wanted(tuple(given.get(n, ())), taken.get(n, ())) for n in names}
            await self._update(record, wanted, "needs a restart to use its device again")

    def came(self, record: ClaimRecord, device: DeviceRecord) -> None:
        """A device that containers of the claim had lost is held again."""
        if layout.settings(device).on_reconnect == RESTART:
            self._due.setdefault(record.ref.uid, set()).add(device.base_request)

    async def back(self, record: ClaimRecord) -> None:
        """The claim has all it lost, and its files say so: containers that want it start again."""
        await self.give(record)
        due = self._due.pop(record.ref.uid, set())
        if self._containers is not None and due:
            await self._change(
                record, self._containers.restart_claim, due, "could not be restarted"
            )

    async def fence(self, record: ClaimRecord) -> None:
        """Before this claim's numbers are handed out: nobody who lost one of them has it still.

        The kernel gives a number to the next device as soon as it is free; another claim that is
        on record with it has lost it, whether that is known already or not.
        """
        # Who only looks (admin access) is handed what its holder keeps.
        numbers = {g.number for d in record.devices if d.exclusive for g in _gone(d)}
        for uid, other in self._records.all().items():
            if uid == record.ref.uid:
                continue
            lost = [d for d in other.devices if d.exclusive and numbers & _numbers(_gone(d))]
            if lost or numbers & _numbers(self._lost.get(uid, ())):
                await self.take(other, lost)

    def forget(self, uid: ClaimUid) -> None:
        """The claim is over and has no containers any more."""
        self._lost.pop(uid, None)
        self._told.pop(uid, None)
        self._due.pop(uid, None)
        if (again := self._again.pop(uid, None)) is not None:
            again.set()

    async def _keep_looking(self, record: ClaimRecord, again: asyncio.Event) -> None:
        """Until a look is the last of a whole round, or the claim is over."""
        number = 0
        while self._again.get(record.ref.uid) is again and number < len(self._late):
            try:
                async with asyncio.timeout(self._late[number]):
                    await again.wait()
            except TimeoutError:
                number += 1
                async with self._turn:
                    await self._take_all(record)
            else:
                again.clear()
                number = 0
        if self._again.get(record.ref.uid) is again:
            del self._again[record.ref.uid]

    async def _take_all(self, record: ClaimRecord) -> None:
        wanted = {name: Wanted(gone=gone) for name, gone in self._by_request(record.ref.uid)}
        await self._update(record, wanted, "may still use a number that it has lost")

    def _by_request(self, uid: ClaimUid) -> Iterator[tuple[str, tuple[Gone, ...]]]:
        lost = self._lost.get(uid, {})
        holders = self._holders(uid) if lost else {}
        for name in sorted(set(lost.values())):
            yield (
                name,
                tuple(
                    replace(gone, holder=holders.get(gone.number))
                    for gone, request in lost.items()
                    if request == name
                ),
            )

    def _holders(self, uid: ClaimUid) -> dict[DeviceNumber, ClaimUid]:
        """Who, of the other claims, has which number now."""
        return {
            gone.number: other
            for other, record in self._records.all().items()
            if other != uid
            for device in record.devices
            if device.exclusive
            for gone in _gone(device)
        }

    async def _update(
        self, record: ClaimRecord, wanted: Mapping[str, Wanted], otherwise: str
    ) -> None:
        """otherwise: what a container that cannot be changed does, for its Event."""
        if self._containers is not None and wanted:
            await self._change(record, self._containers.update_claim, wanted, otherwise)

    async def _change(
        self,
        record: ClaimRecord,
        work: Callable[[ClaimUid, T], list[Problem]],
        what: T,
        otherwise: str,
    ) -> None:
        try:
            problems = await in_thread(work, record.ref.uid, what)
        except (UsbdraError, OSError) as error:
            self._tell(record, f"a container {otherwise}: {error}")
            return
        for problem in problems:
            where = f"container {problem.container.name[:12]} of pod {problem.container.pod}"
            self._tell(record, f"{where} {otherwise}: {problem.error}")

    def _tell(self, record: ClaimRecord, text: str) -> None:
        """Each trouble once: attempts to restore a claim may be many."""
        told = self._told.setdefault(record.ref.uid, set())
        if text not in told:
            told.add(text)
            self._telling.restart_needed(record, text)


def _nodes(device: DeviceRecord) -> tuple[Node, ...]:
    config = layout.settings(device)
    return tuple(
        Node(
            PurePosixPath(link.path),
            DeviceNumber(link.major, link.minor, link.block),
            config.mode,
            config.uid,
            config.gid,
        )
        for link in layout.node_links(device)
    )


def _gone(device: DeviceRecord) -> tuple[Gone, ...]:
    return tuple(
        Gone(PurePosixPath(link.path), DeviceNumber(link.major, link.minor, link.block))
        for link in layout.node_links(device)
    )


def _numbers(gone: Iterable[Gone]) -> set[DeviceNumber]:
    return {one.number for one in gone}
