# SPDX-License-Identifier: Apache-2.0
"""Carrying out a claim's plan, step by step, and taking every step back.

Owns the order of acts and records: recorded, acted, recorded. The caller holds the claim's lock
and sets the time limits. A kill between any two steps leaves a record on disk from which the next
start knows everything that may exist.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, MutableMapping
from contextlib import AbstractContextManager
from dataclasses import replace
from enum import Enum
from typing import Protocol

from usbdra.errors import IdentityChanged, LinkError, StateError, UsbdraError
from usbdra.plugin import layout
from usbdra.plugin.contracts import Attacher, DriversHook, IntentHook, Order
from usbdra.plugin.records import Records
from usbdra.plugin.running import Running
from usbdra.plugin.threads import in_thread
from usbdra.state.claims import (
    ClaimRecord,
    ClaimRef,
    DeviceRecord,
    Held,
    Identity,
    Intent,
    Phase,
    Route,
)
from usbdra.tracing.spans import span
from usbdra.types import ClaimUid, NodeName

log = logging.getLogger(__name__)


class Step(Enum):
    """The points between two steps, in order; tests and the cluster bed stop the agent there."""

    RECORDED = "prepare.recorded"
    INTENDED = "prepare.intended"
    TAKEN = "prepare.taken"
    HELD = "prepare.held"
    FILES_WRITTEN = "prepare.files-written"
    PREPARED = "prepare.prepared"
    RELEASING = "unprepare.releasing"
    FILES_REMOVED = "unprepare.files-removed"
    RELEASED = "unprepare.released"
    FORGOTTEN = "unprepare.forgotten"


StepHook = Callable[[Step, ClaimUid], None]


class Files(Protocol):
    """What of plugin/files.py `ClaimFiles` is used here; all methods block for a moment."""

    def write(self, record: ClaimRecord) -> None:
        """Make the claim's files say what the record says."""

    def is_written(self, record: ClaimRecord) -> bool:
        """Whether they already do."""
        ...

    def remove(self, uid: ClaimUid) -> None:
        """Remove them; none is success."""

    def claims(self) -> dict[ClaimUid, ClaimRecord | None]:
        """Claims that have files, with what their specs were made from."""
        ...


class Acts:
    """The acts on one node."""

    def __init__(
        self,
        records: Records,
        attacher: Attacher,
        files: Files,
        running: Running,
        on_step: StepHook,
        doing: MutableMapping[ClaimUid, str],
    ) -> None:
        """doing: where to say what each claim's operation waits for."""
        self._records = records
        self._attacher = attacher
        self._files = files
        self._running = running
        self._on_step = on_step
        self._doing = doing

    def reaching(self, ref: ClaimRef, node: NodeName | None) -> AbstractContextManager[None]:
        """See contracts.Attacher."""
        return self._attacher.reaching(ref, node)

    async def complete(self, record: ClaimRecord, *, go_on: bool = False) -> ClaimRecord:
        """Take every device of a recorded claim that is not held, and write its files.

        Raises the first failure; what was taken until then is on record. The end of a link that
        came before its record did names no claim, so all is looked at once more at the end:
        LinkError. `go_on`: one device's failure keeps no other one from a claim in use; its files
        then say what it has.
        """
        uid = record.ref.uid
        self._on_step(Step.RECORDED, uid)
        failures: list[UsbdraError] = []
        for device in record.devices:
            if device.held is not None and device.exclusive:
                continue
            try:
                record = await self._take(record, device)
            except UsbdraError as error:
                if not go_on:
                    raise
                failures.append(error)
                record = self._records.get(uid) or record
            else:
                if go_on:
                    self._running.came(record, device)
        self._doing[uid] = "changing running containers"
        await self._running.fence(record)
        if go_on:  # before its links appear, for which a program may be waiting
            await self._running.give(record)
        if failures:
            await self._records.put(record)
            await self.withdraw(record)
            raise failures[0]
        record = replace(record, phase=Phase.PREPARED, error="")
        if not self._records.on_disk(uid):
            await self._records.put(replace(record, phase=Phase.PREPARING))
        self._doing[uid] = "writing its files"
        with span("write-files"):
            await in_thread(self._files.write, record)
        self._on_step(Step.FILES_WRITTEN, uid)
        await self._records.put(record)
        self._on_step(Step.PREPARED, uid)
        if go_on:  # to one too that was made meanwhile, from files that did not say it yet
            await self._running.back(record)
        gone = await self.lost(record)
        if gone:
            names = ", ".join(d.name for d in record.devices if d.key in gone)
            raise LinkError(f"{names} went away as soon as it was there")
        return record

    async def forget_lost(self, record: ClaimRecord) -> ClaimRecord:
        """The record without what is not held any more; remains of it are given back first.

        So is what an agent that was killed at the attach never came to hold.
        """
        for device in record.devices:
            if not device.exclusive or (device.held is None and device.intent is None):
                continue
            self._doing[record.ref.uid] = f"looking at {device.name}"
            if await self._attacher.intact(record.ref, device):
                continue
            await self._running.take(record, [device])
            self._doing[record.ref.uid] = f"giving back what is left of {device.name}"
            await self._attacher.release(record.ref, device)
            record = record.with_device(_nothing(device))
        return record

    async def out_of_reach(self, record: ClaimRecord, keys: Collection[tuple[str, int]]) -> None:
        """Keep running containers from the numbers of devices that the claim has lost (R60)."""
        await self._running.take(record, [d for d in record.devices if d.key in keys])

    async def still(self, record: ClaimRecord) -> None:
        """The claim has all it had: nothing of that is out of reach."""
        await self._running.give(record)

    async def withdraw(self, record: ClaimRecord) -> None:
        """Take out of the claim's files what it does not hold any more.

        A container that starts now must not get numbers that the kernel may have given to
        another claim's device meanwhile (R60).
        """
        self._doing[record.ref.uid] = "writing its files"
        news = not await in_thread(self._files.is_written, record)
        await in_thread(self._files.write, record)
        if news:
            self._running.look_again(record)

    async def lost(self, record: ClaimRecord) -> tuple[tuple[str, int], ...]:
        """Keys of the devices that the claim should hold and does not."""
        claimed = [device for device in record.devices if device.exclusive]
        return tuple([d.key for d in claimed if not await self._attacher.intact(record.ref, d)])

    async def intact(self, record: ClaimRecord) -> bool:
        """Whether everything the claim should hold is held and its files say so."""
        if await self.lost(record):
            return False
        return await in_thread(self._files.is_written, record)

    async def give_back(self, record: ClaimRecord) -> None:
        """Undo a claim in reverse: its files, its devices, its record.

        Goes on after a failure, keeps on record what could not be given back, and raises the
        first one. Idempotent.
        """
        uid = record.ref.uid
        record = replace(record, phase=Phase.RELEASING)
        if self._records.on_disk(uid):
            try:
                await self._records.put(record)
            except StateError as error:  # a full disk must not keep devices from going back
                log.warning("giving back %s goes on without a record: %s", record.ref, error)
        else:  # nothing of it is anywhere but in this process
            self._records.note(record)
        self._on_step(Step.RELEASING, uid)
        self._doing[uid] = "removing its files"
        with span("remove-files"):
            await in_thread(self._files.remove, uid)
        self._on_step(Step.FILES_REMOVED, uid)
        await self._running.take(record, [d for d in record.devices if d.exclusive])
        failures = []
        for device in reversed(record.devices):
            if not device.exclusive:
                continue
            self._doing[uid] = f"giving back {device.name}"
            try:
                with span("release", device=device.name, node=device.node):
                    await self._attacher.release(record.ref, device)
            except Exception as error:
                failures.append(error)
            else:
                record = record.with_device(_nothing(device))
            self._on_step(Step.RELEASED, uid)
        if failures:
            await self._records.put(replace(record, error=str(failures[0])))
            raise failures[0]
        await self._records.drop(uid)
        self._running.forget(uid)
        self._on_step(Step.FORGOTTEN, uid)

    async def _take(self, record: ClaimRecord, device: DeviceRecord) -> ClaimRecord:
        uid = record.ref.uid
        current = record

        async def record_first(about: DeviceRecord) -> None:
            nonlocal current, device
            device = about
            current = current.with_device(about)
            await self._records.put(current)
            self._on_step(Step.INTENDED, uid)

        async def intent(about: Intent) -> None:
            await record_first(replace(device, intent=about))

        async def drivers(off: Mapping[str, str]) -> None:
            await record_first(replace(device, drivers_off={**device.drivers_off, **off}))

        with span("take", device=device.name, node=device.node, route=device.route.value):
            held = await self._hold(_order(record.ref, device), device.route, intent, drivers)
        self._on_step(Step.TAKEN, uid)
        syspath = (held.syspath if held is not None else "") or device.syspath
        current = current.with_device(replace(device, held=held, intent=None, syspath=syspath))
        # The intent on disk proves the port to be ours; a start after a kill gives it back.
        self._records.note(current)
        self._on_step(Step.HELD, uid)
        if held is not None:
            _check_identity(device, held)
        return current

    async def _hold(
        self, order: Order, route: Route, intent: IntentHook, drivers: DriversHook
    ) -> Held | None:
        uid = order.claim.uid
        if route is Route.VHCI:
            self._doing[uid] = f"attaching {order.name} of node {order.node}"
            return await self._attacher.attach_remote(order, intent)
        if route is Route.DIRECT:
            self._doing[uid] = f"taking {order.name}"
            return await self._attacher.take_local(order, drivers)
        self._doing[uid] = f"looking for {order.name}"
        return await self._attacher.observe(order)


def _nothing(device: DeviceRecord) -> DeviceRecord:
    """The device of a claim that has nothing of it."""
    return replace(device, held=None, intent=None, drivers_off={})


def _order(ref: ClaimRef, device: DeviceRecord) -> Order:
    return Order(
        claim=ref,
        name=device.name,
        node=device.node,
        hub=device.hub,
        identity=device.identity,
        host_drivers=layout.settings(device).host_drivers,
    )


def _check_identity(device: DeviceRecord, held: Held) -> None:
    wanted, came = device.identity, held.identity
    if wanted is not None and not wanted.same(came):
        raise IdentityChanged(
            f"device {device.name} of node {device.node} should be {_words(wanted)} "
            f"and is {_words(came)}"
        )


def _words(identity: Identity) -> str:
    """All that tells two devices apart; a serial is a text of the device's own making."""
    serial = f" with serial {identity.serial!r}" if identity.serial is not None else ""
    return f"{identity.vendor_id}:{identity.product_id}{serial}"
