# SPDX-License-Identifier: Apache-2.0
"""Prepare and unprepare of claims: turns, time limits, what to do when something fails.

Owns a claim's life on this node from the kubelet's first call to its last. Claims go on side by
side, calls for one claim one after another; every call ends below the kubelet's 45 s
(pkg/kubelet/cm/dra/plugin/dra_plugin.go). Acts are acts.py's, decisions after a restart
recover.py's. Must not know gRPC.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from usbdra.errors import ClaimBusy, NotFound, OutOfTime, Refused, StateError, UsbdraError
from usbdra.plugin import status
from usbdra.plugin.acts import Acts, Files, Step, StepHook
from usbdra.plugin.contracts import Attacher, Claims, DeviceView, Reporter
from usbdra.plugin.locks import ClaimLocks, NodeLock
from usbdra.plugin.plan import plan, read_claim, targets
from usbdra.plugin.records import Records
from usbdra.plugin.threads import in_thread
from usbdra.state.claims import ClaimRecord, ClaimRef, Phase, Route
from usbdra.state.recover import (
    Action,
    Keep,
    Lost,
    RemoveFiles,
    Rewrite,
    Store,
    World,
    recover,
)
from usbdra.types import ClaimUid, NodeName, Port

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds. prepare + undo, and unprepare, stay below the kubelet's 45.

    retries: pauses between attempts to give back what a failed call left; the last one repeats.
    """

    prepare: float = 32.0
    undo: float = 10.0
    unprepare: float = 40.0
    retries: tuple[float, ...] = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


def _no_step(step: Step, uid: ClaimUid) -> None:
    """Nobody stops here."""


class Preparer:
    """See module. `boot_id` is /proc/sys/kernel/random/boot_id; `driver` and `node` are ours."""

    def __init__(
        self,
        *,
        driver: str,
        node: NodeName,
        boot_id: str,
        records: Records,
        claims: Claims,
        view: DeviceView,
        attacher: Attacher,
        files: Files,
        reporter: Reporter,
        node_lock: NodeLock,
        limits: Limits | None = None,
        on_step: StepHook = _no_step,
    ) -> None:
        self._driver = driver
        self._node = node
        self._boot_id = boot_id
        self._records = records
        self._claims = claims
        self._view = view
        self._files = files
        self._reporter = reporter
        self._node_lock = node_lock
        self._limits = limits or Limits()
        self._locks = ClaimLocks()
        self._acts = Acts(records, attacher, files, on_step)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._cleaning: set[ClaimUid] = set()

    async def prepare(self, ref: ClaimRef) -> ClaimRecord:
        """Make the claim's devices usable and return its record; the same again when called again.

        Raises UsbdraError with a text for the pod's owner; a new claim then holds nothing, or
        what it still holds is on record and worked off.
        """
        deadline = _now() + self._limits.prepare
        try:
            async with self._turn(ref.uid, deadline):
                known = self._records.get(ref.uid)
                if known is not None and known.phase is Phase.RELEASING:
                    async with self._in_time(ref, deadline):
                        await self._acts.give_back(known)
                    known = None
                if known is None:
                    record, news = await self._prepare_new(ref, deadline), True
                else:
                    record, news = await self._prepare_again(known, deadline)
        except UsbdraError as error:
            self._tell_failure(ref, error)
            raise
        if news:
            self._tell_prepared(record)
        return record

    async def unprepare(self, ref: ClaimRef) -> None:
        """Give back everything of the claim; an unknown claim is given back already.

        Works from local records alone. Raises UsbdraError when something could not be given
        back in time; the record stays and the next call goes on with it.
        """
        deadline = _now() + self._limits.unprepare
        try:
            async with self._turn(ref.uid, deadline):
                record = self._records.get(ref.uid)
                if record is None:
                    return
                async with self._in_time(record.ref, deadline):
                    await self._acts.give_back(record)
        except UsbdraError as error:
            self._tell_failure(ref, error)
            raise
        self._tell_released(record)

    async def recover(
        self, ports: Sequence[Port], allocated: Mapping[ClaimUid, bool] | None
    ) -> list[Lost]:
        """Carry out what recover.py decides; returns the devices that are to be attached again.

        ports: the vhci rows. allocated: as in `recover.World`. A claim that cannot be recovered
        keeps its record, is reported, and holds up no other.
        """
        async with self._node_lock.hold():
            files = await in_thread(self._files.claims)
            self._tell_set_aside(files)
            records = self._records.all()
            world = World(self._boot_id, ports, files, allocated)
            decided = groupby(recover(records, world), key=lambda action: action.uid)
            work = [self._recover_claim(uid, records.get(uid), list(a)) for uid, a in decided]
            return [lost for found in await asyncio.gather(*work) for lost in found]

    async def restore(self, ref: ClaimRef) -> ClaimRecord | None:
        """Attach again what a prepared claim has lost; None when the claim is not here any more.

        For the supervisor of links. Raises UsbdraError; what is still held stays held.
        """
        deadline = _now() + self._limits.prepare
        async with self._turn(ref.uid, deadline):
            record = self._records.get(ref.uid)
            if record is None or record.phase is not Phase.PREPARED:
                return None
            record, news = await self._prepare_again(record, deadline)
        if news:
            self._tell_prepared(record)
        return record

    async def aclose(self) -> None:
        """Stop background work; records say what is left to do."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _prepare_new(self, ref: ClaimRef, deadline: float) -> ClaimRecord:
        async with self._in_time(ref, deadline):
            self._acts.doing[ref.uid] = "reading the claim"
            record = await self._plan(ref)
        await self._records.add(record)
        try:
            async with self._in_time(ref, deadline):
                return await self._acts.complete(record)
        except Exception:
            await self._undo(ref)
            raise

    async def _prepare_again(
        self, record: ClaimRecord, deadline: float
    ) -> tuple[ClaimRecord, bool]:
        """A claim on record: as it was, or completed where the world has changed.

        A failure takes nothing away: containers of the claim may be running.
        """
        async with self._in_time(record.ref, deadline):
            if record.phase is Phase.PREPARED and await self._acts.intact(record):
                return record, False
            record = replace(await self._acts.forget_lost(record), boot_id=self._boot_id)
            await self._records.put(record)
            return await self._acts.complete(record), True

    async def _plan(self, ref: ClaimRef) -> ClaimRecord:
        claim = await self._claims.get(ref.namespace, ref.name)
        if claim is None:
            raise NotFound(f"{ref} is not in the API any more")
        found = claim["metadata"]["uid"]
        if found != ref.uid:
            raise Refused(f"{ref} was replaced by another of the same name, UID {found}")
        allocation = read_claim(claim, self._driver)
        facts = {}
        for result in allocation.results:
            fact = await self._view.lookup(result.pool, result.device)
            if fact is not None:
                facts[result.pool, result.device] = fact
        named = {}
        for target in targets(allocation):
            known = await self._view.find(target)
            if known is not None:
                named[target] = known
        return plan(allocation, facts, named, self._node, self._boot_id)

    async def _undo(self, ref: ClaimRef) -> None:
        """After a failed prepare; the error to report is the one that led here."""
        record = self._records.get(ref.uid)
        if record is None:
            return
        try:
            async with self._in_time(ref, _now() + self._limits.undo):
                await self._acts.give_back(record)
        except Exception as error:
            log.error("%s could not be undone and is tried again: %s", ref, error)
            self._clean_later(ref.uid)

    async def _recover_claim(
        self, uid: ClaimUid, seen: ClaimRecord | None, actions: Sequence[Action]
    ) -> list[Lost]:
        """One claim's actions, unless a call of the kubelet came first and changed it."""
        lost: list[Lost] = []
        async with self._locks.hold(uid):
            if self._records.get(uid) is not seen:
                return []
            try:
                for action in actions:
                    lost += await self._carry_out(action)
            except UsbdraError as error:
                log.error("claim %s cannot be recovered now: %s", uid, error)
                self._clean_later(uid)
        return lost

    async def _carry_out(self, action: Action) -> list[Lost]:
        uid = action.uid
        if isinstance(action, Store):
            await self._records.put(action.record)
        elif isinstance(action, RemoveFiles):
            await in_thread(self._files.remove, uid)
        elif isinstance(action, Lost):
            return [action]
        else:
            record = self._records.all()[uid]
            if isinstance(action, Keep):
                return await self._look_closer(record)
            if isinstance(action, Rewrite):
                await in_thread(self._files.write, record)
            else:
                await self._release_at_start(record, action.why)
        return []

    async def _release_at_start(self, record: ClaimRecord, why: str) -> None:
        log.info("%s is given back: %s", record.ref, why)
        async with self._in_time(record.ref, _now() + self._limits.undo):
            await self._acts.give_back(record)
        self._tell_released(record)

    async def _look_closer(self, record: ClaimRecord) -> list[Lost]:
        """The rows agree; whether the devices do, the attacher says, and takes them as held."""
        lost = await self._acts.lost(record)
        return [Lost(record.ref.uid, lost)] if lost else []

    def _clean_later(self, uid: ClaimUid) -> None:
        if uid not in self._cleaning:
            self._cleaning.add(uid)
            self._start(self._clean(uid))

    async def _clean(self, uid: ClaimUid) -> None:
        """Try to give back what a failed call left, with growing pauses, until it is gone."""
        attempt = 0
        try:
            while True:
                pauses = self._limits.retries
                await asyncio.sleep(pauses[min(attempt, len(pauses) - 1)])
                attempt += 1
                try:
                    if await self._cleaned(uid):
                        return
                except UsbdraError as error:
                    log.warning("claim %s is still not given back: %s", uid, error)
        finally:
            self._cleaning.discard(uid)

    async def _cleaned(self, uid: ClaimUid) -> bool:
        deadline = _now() + self._limits.unprepare
        async with self._turn(uid, deadline):
            record = self._records.get(uid)
            if record is None or record.phase is Phase.PREPARED:
                return True
            async with self._in_time(record.ref, deadline):
                await self._acts.give_back(record)
        self._tell_released(record)
        return True

    @asynccontextmanager
    async def _turn(self, uid: ClaimUid, deadline: float) -> AsyncIterator[None]:
        """The claim's lock and the node's. Raises ClaimBusy when they do not come in time."""
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout_at(deadline):
                    await stack.enter_async_context(self._locks.hold(uid))
                    await stack.enter_async_context(self._node_lock.hold())
            except TimeoutError as error:
                doing = self._acts.doing.get(uid, "another agent of this node at work")
                raise ClaimBusy(f"claim {uid} waits for an earlier call: {doing}") from error
            stack.callback(self._acts.doing.pop, uid, None)
            yield

    @asynccontextmanager
    async def _in_time(self, ref: ClaimRef, deadline: float) -> AsyncIterator[None]:
        """Raises OutOfTime, saying what was waited for."""
        try:
            async with asyncio.timeout_at(deadline):
                yield
        except TimeoutError as error:
            doing = self._acts.doing.get(ref.uid, "waiting")
            raise OutOfTime(f"{ref} ran out of time while {doing}") from error

    def _tell_prepared(self, record: ClaimRecord) -> None:
        devices = status.device_statuses(record, datetime.now(UTC))
        self._start(self._reporter.prepared(record, devices))
        if any(device.route is Route.VHCI for device in record.devices):
            text = status.summary(record)
            self._start(self._reporter.event(record.ref, "Attached", text, False))

    def _tell_released(self, record: ClaimRecord) -> None:
        self._start(self._reporter.released(record.ref))
        names = ", ".join(d.name for d in record.devices if d.route is Route.VHCI)
        if names:
            self._start(self._reporter.event(record.ref, "Detached", f"{names} given back", False))

    def _tell_set_aside(self, files: Mapping[ClaimUid, ClaimRecord | None]) -> None:
        for bad in self._records.take_set_aside():
            text = f"a record could not be used and is kept as {bad.path}: {bad.reason}"
            log.error("claim %s: %s", bad.name, text)
            found = files.get(ClaimUid(bad.name))
            if found is not None:
                self._start(self._reporter.event(found.ref, StateError.reason, text, True))

    def _tell_failure(self, ref: ClaimRef, error: UsbdraError) -> None:
        log.warning("%s: %s", ref, error)
        self._start(self._reporter.event(ref, error.reason, str(error), True))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("background work failed", exc_info=task.exception())


def _now() -> float:
    return asyncio.get_running_loop().time()
