# SPDX-License-Identifier: Apache-2.0
"""Taking a device from its driver for usbip-host, and giving it back, whatever happens between.

Owns the journal (one record a device, written before each act) and a lock per device; the acts
themselves are in exporter/stubhost.py. Must not decide who may have a device, and must not talk
to the network.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from usbdra.errors import (
    DeviceBusy,
    DriverNotRestored,
    ExportFailed,
    HostInUse,
    NotFound,
    StateError,
    UsbdraError,
)
from usbdra.exporter import usbdev
from usbdra.exporter.stubhost import AVAILABLE, ERROR, STUB, USED, NoMatchEntry, StubHost
from usbdra.locks import ProcessLock
from usbdra.state.exports import ExportPhase, ExportRecord, ExportSchema, Session
from usbdra.state.store import RecordStore, SetAside
from usbdra.types import BusId
from usbdra.vhci.waiting import EventSource, Waiter

JOURNAL = "run/usbdra/exports"


@dataclass(frozen=True, slots=True)
class Recovered:
    """What `recover` found: sessions that still run, and what it could not put right.

    `set_aside` are records that nobody could read.
    """

    running: tuple[ExportRecord, ...]
    failures: tuple[tuple[BusId, OSError | UsbdraError], ...]
    set_aside: tuple[SetAside, ...]


class Binder:
    """Binds and releases the devices below `root`, one act on a device at a time.

    `in_use(busid)` names what the host itself does with a device, None when nothing. A record
    says how far a bind or release has come, so what a crash left half done is finished by the
    next `bind` or `release` of the device, or by `recover`.
    """

    def __init__(
        self,
        root: Path = Path("/"),
        *,
        events: EventSource,
        in_use: Callable[[BusId], str | None],
        host: StubHost | None = None,
        journal: Path | None = None,
    ) -> None:
        self._root = root
        self._events = events
        self._in_use = in_use
        self._host = host or StubHost(root)
        self._journal = journal or root / JOURNAL
        self._records: RecordStore[ExportRecord] = RecordStore(self._journal, ExportSchema())
        self._locks: dict[BusId, ProcessLock] = {}

    async def bind(
        self, busid: BusId, *, pinned: bool = False, session: Session | None = None
    ) -> ExportRecord:
        """Make the device ready for a session; it is bound and at status 1 on return.

        `session`: whom it is bound for, recorded from the first write on.
        Idempotent: finishes what was interrupted, brings a device in error back, and ends a
        session that is in no record of ours. Raises NotFound, HostInUse, DeviceBusy,
        KernelUnsupported, StateError (before any change), ExportFailed (with the device back at
        its host; where that failed too, its record stays for `release`).
        """
        while True:
            try:
                return await self._bind(busid, pinned, session)
            except NoMatchEntry:
                # Outside the device's lock, since that of another device is taken for it. The
                # room may be taken by another bind meanwhile; each round empties an entry.
                if not await self._make_room():
                    raise

    async def release(self, busid: BusId, *, of: Session | None = None) -> None:
        """Give the device back to its own drivers, ending a session if there is one.

        `of`: the session that is over; a device bound for another one meanwhile, by an exporter
        that runs beside this one (R42), is left alone.
        Idempotent. Raises NotFound (no such device), DriverNotRestored (the record stays, and
        the device must not be offered), StateError, ExportFailed (the device does not let go).
        """
        async with self._held(busid) as waiter:
            if not self._is_of_another(busid, of):
                await self._release(busid, waiter)

    async def hand_over(self, busid: BusId, sockfd: int, session: Session) -> None:
        """Give the connected socket to the device's stub. Borrows sockfd.

        The session is recorded before the write. Raises StateError, ExportFailed; no session is
        left then, the device stays bound.
        """
        async with self._held(busid):
            record = self.record(busid)
            if record is None or record.phase is not ExportPhase.BOUND:
                raise ExportFailed(f"device {busid} is not bound by us; bind it first")
            if self._is_of_another(busid, session):
                raise ExportFailed(f"device {busid} was given to another session meanwhile")
            self._records.save(busid, replace(record, session=session))
            try:
                self._host.hand_over(busid, sockfd)
            except (OSError, ExportFailed) as error:
                self._records.save(busid, record)
                if isinstance(error, ExportFailed):
                    raise
                raise ExportFailed(f"device {busid} refused the connection: {error}") from error

    async def end_session(self, busid: BusId, *, of: Session | None = None) -> None:
        """End the running session, if any, and wait until the device is ready again.

        A device that is gone has no session; `of` as for `release`. Raises ExportFailed when it
        does not come ready.
        """
        async with self._held(busid) as waiter:
            if self._is_of_another(busid, of):
                return
            await self._host.settle_session(busid, waiter)
            self._clear_session(busid)

    async def session_over(self, busid: BusId, *, of: Session | None = None) -> None:
        """After the link has ended: wait until the kernel has finished the session.

        `of` as for `release`. Raises ExportFailed when it does not within the limit.
        """
        async with self._held(busid) as waiter:
            if self._is_of_another(busid, of):
                return
            await self._host.wait_status(busid, waiter, (AVAILABLE, ERROR, None))
            self._clear_session(busid)

    async def recover(self) -> Recovered:
        """Put every record and its device in agreement after a start, crash or reboot.

        Sessions that still run are left alone. What was interrupted is undone, pinned devices
        are bound again, and devices without a session go back to their host unless pinned.
        """
        records, aside = self._records.load_all()
        running: list[ExportRecord] = []
        failures: list[tuple[BusId, OSError | UsbdraError]] = []
        for record in records.values():
            try:
                kept = await self._recover(record.busid)
            except (OSError, UsbdraError) as error:
                failures.append((record.busid, error))
            else:
                if kept is not None:
                    running.append(kept)
        return Recovered(tuple(running), tuple(failures), tuple(aside))

    def require_unused(self, busid: BusId) -> None:
        """Raises HostInUse when the host itself uses the device."""
        holder = self._in_use(busid)
        if holder is not None:
            raise HostInUse(busid, holder)

    def status(self, busid: BusId) -> int | None:
        """`usbip_status` (1 available, 2 used, 3 error); None when not bound or gone."""
        return self._host.status(busid)

    def devid(self, busid: BusId) -> int | None:
        """bus << 16 | device number as it is now; None when the device is gone."""
        device = usbdev.read(self._root, busid)
        return None if device is None else device.devid

    def record(self, busid: BusId) -> ExportRecord | None:
        """The journal's record of this device; one of another device on its bus id is dropped.

        Raises StateError for a record that cannot be read; it is set aside then.
        """
        record = self._records.load(busid)
        if record is not None:
            device = usbdev.read(self._root, busid)
            if device is None or device.identity != record.identity:
                self._records.delete(busid)
                return None
        return record

    async def _bind(self, busid: BusId, pinned: bool, session: Session | None) -> ExportRecord:
        async with self._held(busid) as waiter:
            device = self._device(busid)
            self._host.require()
            record = self.record(busid)
            if device.driver == STUB:
                return await self._ready_again(device, record, pinned, session, waiter)
            self.require_unused(busid)
            return await self._take(device, record, pinned, session, waiter)

    async def _make_room(self) -> bool:
        """Empty one entry of `match_busid` whose device was pulled while bound and is back.

        The kernel empties it when the device is bound and released once more, so one that
        nobody uses is: on this host (`in_use`), over the network or by hand (any other driver
        than its own, any record of ours). False when there is none.
        """
        for busid in self._host.entries():
            async with self._held(busid) as waiter:
                if busid not in self._host.entries():
                    return True  # another bind was quicker
                device = usbdev.read(self._root, busid)
                if device is None or device.driver in (None, STUB):
                    continue
                if self.record(busid) is not None or self._in_use(busid) is not None:
                    continue
                with suppress(OSError, ExportFailed, StateError):
                    await self._take(device, None, False, None, waiter)
                    await self._release(busid, waiter)
                if busid not in self._host.entries():
                    return True
        return False

    async def _release(self, busid: BusId, waiter: Waiter) -> None:
        record = self.record(busid)
        device = self._device(busid)
        if device.driver == STUB:
            await self._host.settle_session(busid, waiter)
            if record is not None:
                record = replace(record, phase=ExportPhase.RELEASING, session=None)
                self._records.save(busid, record)
        elif record is None and device.driver is not None:
            return
        await self._host.give_back(device, {} if record is None else record.drivers, waiter)
        self._records.delete(busid)

    async def _recover(self, busid: BusId) -> ExportRecord | None:
        """The record of a session that still runs, else None."""
        async with self._held(busid) as waiter:
            record = self.record(busid)
            if record is None:
                return None
            if record.session is not None and self.status(busid) == USED:
                return record
            if not record.pinned:
                await self._release(busid, waiter)
                return None
        await self.bind(busid, pinned=True)
        return None

    async def _ready_again(
        self,
        device: usbdev.BoundDevice,
        record: ExportRecord | None,
        pinned: bool,
        session: Session | None,
        waiter: Waiter,
    ) -> ExportRecord:
        """The device is with usbip-host already; make sure that it is at status 1."""
        busid = device.busid
        if record is not None and record.session is not None and self.status(busid) == USED:
            raise DeviceBusy(busid, record.session.holder)
        ready = ExportRecord(
            busid=busid,
            identity=device.identity,
            phase=ExportPhase.BOUND,
            drivers={} if record is None else record.drivers,
            pinned=pinned or (record is not None and record.pinned),
            session=session,
        )
        if ready != record:
            self._records.save(busid, ready)
        try:
            await self._host.make_ready(device, waiter)
        except OSError as error:
            raise ExportFailed(f"device {busid} cannot be exported: {error}") from error
        return ready

    async def _take(
        self,
        device: usbdev.BoundDevice,
        record: ExportRecord | None,
        pinned: bool,
        session: Session | None,
        waiter: Waiter,
    ) -> ExportRecord:
        """From the device's own driver, or from no driver at all, to usbip-host."""
        busid = device.busid
        # A record of a device without a driver is of a bind that was cut short after `unbind`:
        # its interfaces are gone from sysfs, only the record still knows their drivers.
        interrupted = record is not None and device.driver is None
        drivers = record.drivers if record is not None and interrupted else device.drivers
        binding = ExportRecord(
            busid, device.identity, ExportPhase.BINDING, drivers, pinned, session
        )
        self._records.save(busid, binding)
        try:
            await self._host.take(device, waiter)
            bound = replace(binding, phase=ExportPhase.BOUND)
            self._records.save(busid, bound)
        except BaseException as error:
            await self._undo(binding, waiter)
            if isinstance(error, OSError):
                raise ExportFailed(f"device {busid} cannot be exported: {error}") from error
            raise
        return bound

    async def _undo(self, record: ExportRecord, waiter: Waiter) -> None:
        """Back to the host; the record stays, for `release` to work off, if that fails.

        The first error is the one that is reported, so none is raised here.
        """
        with suppress(OSError, DriverNotRestored, ExportFailed, StateError):
            device = usbdev.read(self._root, record.busid)
            if device is not None:
                await self._host.give_back(device, record.drivers, waiter)
            self._records.delete(record.busid)

    def _is_of_another(self, busid: BusId, session: Session | None) -> bool:
        """The device is bound for another session than this one, of which the record tells."""
        record = self.record(busid)
        bound_for = record.session if record is not None else None
        return session is not None and bound_for is not None and bound_for.key != session.key

    def _clear_session(self, busid: BusId) -> None:
        record = self.record(busid)
        if record is not None and record.session is not None:
            self._records.save(busid, replace(record, session=None))

    def _device(self, busid: BusId) -> usbdev.BoundDevice:
        device = usbdev.read(self._root, busid)
        if device is None:
            raise NotFound(f"no USB device {busid} on this host")
        return device

    @asynccontextmanager
    async def _held(self, busid: BusId) -> AsyncIterator[Waiter]:
        """The device's lock, and a subscription opened before anything is written."""
        lock = self._locks.setdefault(busid, ProcessLock(self._journal / f".{busid}.lock"))
        async with lock.held(), Waiter(self._events) as waiter:
            yield waiter
