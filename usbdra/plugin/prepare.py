# SPDX-License-Identifier: Apache-2.0
"""Prepare and unprepare of claims: what to do in which case, and when something fails.

Owns a claim's life on this node from the kubelet's first call to its last. Claims go on side by
side, calls for one claim one after another; every call ends below the kubelet's 45 s
(pkg/kubelet/cm/dra/plugin/dra_plugin.go). Acts are acts.py's, turns turns.py's, what happens
after a restart recovery.py's. Must not know gRPC.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from usbdra.errors import NotFound, Refused, UsbdraError
from usbdra.plugin.acts import Acts, Files, Step, StepHook
from usbdra.plugin.contracts import Attacher, Claims, DeviceView, Reporter
from usbdra.plugin.health import HealthBoard
from usbdra.plugin.locks import NodeLock
from usbdra.plugin.losses import Losses
from usbdra.plugin.plan import Allocation, plan, read_claim, targets
from usbdra.plugin.records import Records
from usbdra.plugin.recovery import RESTORE_API_SECONDS, Recovery
from usbdra.plugin.rooted import rooted
from usbdra.plugin.running import LATE, Containers, Running
from usbdra.plugin.steps import StepTimes
from usbdra.plugin.telling import Telling
from usbdra.plugin.turns import Turns, after
from usbdra.state.claims import ClaimRecord, ClaimRef, Phase
from usbdra.state.recover import Lost
from usbdra.tracing.spans import OFF, Kind, Tracer, spanned
from usbdra.types import ClaimUid, NodeName, Port

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds. prepare + undo, and unprepare, stay below the kubelet's 45.

    retries: pauses between attempts to give back what a failed call left; the last one repeats.
    late: pauses between looks for containers of before a loss.
    """

    prepare: float = 32.0
    undo: float = 10.0
    unprepare: float = 40.0
    retries: tuple[float, ...] = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
    late: tuple[float, ...] = LATE


def _no_step(step: Step, uid: ClaimUid) -> None:
    """Nobody stops here."""


OnDone = Callable[[str, str, Mapping[str, float]], None]
"""Hears of each `prepare` and `unprepare` that did something: `ok` or the error's reason, and
the milliseconds of its phases (steps.py)."""


def _nobody(what: str, result: str, took: Mapping[str, float]) -> None:
    """Nobody counts."""


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
        board: HealthBoard,
        limits: Limits | None = None,
        on_step: StepHook = _no_step,
        on_done: OnDone = _nobody,
        containers: Containers | None = None,
        tracer: Tracer = OFF,
    ) -> None:
        self.tracer = tracer
        self._on_done = on_done
        self._driver = driver
        self._node = node
        self._boot_id = boot_id
        self._records = records
        self._claims = claims
        self._view = view
        self._limits = limits or Limits()
        self._turns = Turns(node_lock)
        self._telling = Telling(reporter, board)
        self._times = StepTimes(on_step)
        running = Running(containers, records, self._telling, self._limits.late)
        self._acts = Acts(records, attacher, files, running, self._times, self._turns.doing)
        self.losses = Losses(records, self._acts, self._telling, node_lock)
        self._cleaning: set[ClaimUid] = set()
        self._recovery = Recovery(
            boot_id=boot_id,
            records=records,
            claims=claims,
            files=files,
            acts=self._acts,
            turns=self._turns,
            telling=self._telling,
            release_seconds=self._limits.undo,
            clean_later=self._clean_later,
        )

    @rooted("NodePrepareResources", Kind.SERVER)
    async def prepare(self, ref: ClaimRef) -> ClaimRecord:
        """Make the claim's devices usable and return its record; the same again when called again.

        Raises UsbdraError with a text for the pod's owner; a new claim then holds nothing, or
        what it still holds is on record and worked off.
        """
        deadline = after(self._limits.prepare)
        result = "InternalError"
        try:
            async with self._turns.turn(ref.uid, deadline):
                self._times.begin(ref.uid)
                known = self._records.get(ref.uid)
                if known is not None and known.phase is Phase.RELEASING:
                    async with self._turns.in_time(ref, deadline):
                        await self._acts.give_back(known)
                    known = None
                if known is None:
                    record, news = await self._prepare_new(ref, deadline), True
                else:
                    record, news = await self._prepare_again(known, deadline)
            result = "ok"
        except UsbdraError as error:
            result = error.reason
            self._telling.failed(ref, error)
            raise
        finally:
            took = self._times.end(ref.uid)
            if result != "ok" or news:
                self._on_done("prepare", result, took)
        if news:
            log.info("claim prepared", extra={"claim": str(ref), "took_ms": took})
            self._telling.prepared(record)
        return record

    @rooted("NodeUnprepareResources", Kind.SERVER)
    async def unprepare(self, ref: ClaimRef) -> None:
        """Give back everything of the claim; an unknown claim is given back already.

        Works from local records alone. Raises UsbdraError when something could not be given
        back in time; the record stays and the next call goes on with it.
        """
        deadline = after(self._limits.unprepare)
        result = "InternalError"
        try:
            async with self._turns.turn(ref.uid, deadline):
                record = self._records.get(ref.uid)
                if record is None:
                    result = "ok"
                    self._telling.given_up(ref)
                    return
                self._times.begin(ref.uid)
                async with self._turns.in_time(record.ref, deadline):
                    await self._acts.give_back(record)
            result = "ok"
        except UsbdraError as error:
            result = error.reason
            self._telling.failed(ref, error)
            raise
        finally:
            took = self._times.end(ref.uid)
            if result != "ok" or took:
                self._on_done("unprepare", result, took)
        log.info("claim given back", extra={"claim": str(ref), "took_ms": took})
        self._telling.released(record)

    async def recover(self, ports: Callable[[], Sequence[Port]]) -> list[Lost]:
        """Bring records, kernel, files and API together, at start or later; see Recovery.run."""
        return await self._recovery.run(ports)

    @rooted("Reattach")
    async def restore(self, ref: ClaimRef) -> ClaimRecord | None:
        """Attach again what a prepared claim has lost; None when the claim is not here any more.

        A claim that the API has no more, or gave to nobody, is given back instead (R26, R48); an
        API that does not answer leaves that decision to the exporter. For the supervisor of
        links. Raises UsbdraError; what is still held stays held.
        """
        deadline = after(self._limits.prepare)
        async with self._turns.turn(ref.uid, deadline):
            record = self._records.get(ref.uid)
            if record is None or record.phase is not Phase.PREPARED:
                return None
            if await self._recovery.allocated([ref], RESTORE_API_SECONDS) == {ref.uid: False}:
                log.info("%s is given back: the API has it no more", ref)
                async with self._turns.in_time(ref, deadline):
                    await self._acts.give_back(record)
                self._telling.released(record)
                return None
            try:
                record, news = await self._prepare_again(record, deadline)
            except UsbdraError as error:
                record = self._records.get(ref.uid) or record
                self._telling.regained(record, await self._acts.lost(record))
                self._telling.failed(ref, error)
                raise
            if not news:
                await self._acts.still(record)
        if news or self._telling.misses(ref.uid):
            self._telling.prepared(record)
        return record

    async def aclose(self) -> None:
        """Stop background work; records say what is left to do."""
        await self._telling.aclose()

    async def _prepare_new(self, ref: ClaimRef, deadline: float) -> ClaimRecord:
        async with self._turns.in_time(ref, deadline):
            self._turns.doing[ref.uid] = "reading the claim"
            allocation = await self._read(ref)
        with self._acts.reaching(ref, self._asked(allocation)):
            async with self._turns.in_time(ref, deadline):
                record = await self._plan(allocation)
            self._records.add(record)
            try:
                async with self._turns.in_time(ref, deadline):
                    return await self._acts.complete(record)
            except Exception as error:
                if isinstance(error, UsbdraError):
                    self._telling.not_ready(record, error)
                await self._undo(ref)
                raise

    async def _prepare_again(
        self, record: ClaimRecord, deadline: float
    ) -> tuple[ClaimRecord, bool]:
        """A claim on record: as it was, or completed where the world has changed.

        A failure takes nothing away: containers of the claim may be running.
        """
        async with self._turns.in_time(record.ref, deadline):
            if record.phase is Phase.PREPARED and await self._acts.intact(record):
                return record, False
            record = replace(await self._acts.forget_lost(record), boot_id=self._boot_id)
            await self._records.put(record)
            await self._acts.withdraw(record)
            in_use = record.phase is Phase.PREPARED
            return await self._acts.complete(record, go_on=in_use), True

    @spanned("read-claim")
    async def _read(self, ref: ClaimRef) -> Allocation:
        claim = await self._claims.get(ref.namespace, ref.name)
        if claim is None:
            raise NotFound(f"{ref} is not in the API any more")
        found = claim["metadata"]["uid"]
        if found != ref.uid:
            raise Refused(f"{ref} was replaced by another of the same name, UID {found}")
        return read_claim(claim, self._driver)

    def _asked(self, allocation: Allocation) -> NodeName | None:
        """The first other node that the claim will ask for a device, as far as names tell."""
        for result in allocation.results:
            target = result.config.target
            node = target.node if target else self._view.owner(result.pool)
            if not result.admin and node not in (None, self._node):
                return node
        return None

    @spanned("plan")
    async def _plan(self, allocation: Allocation) -> ClaimRecord:
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
            async with self._turns.in_time(ref, after(self._limits.undo)):
                await self._acts.give_back(record)
        except Exception as error:
            log.error("%s could not be undone and is tried again: %s", ref, error)
            self._clean_later(ref.uid)

    def _clean_later(self, uid: ClaimUid) -> None:
        if uid not in self._cleaning:
            self._cleaning.add(uid)
            self._telling.start(self._clean(uid))

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
        deadline = after(self._limits.unprepare)
        async with self._turns.turn(uid, deadline):
            record = self._records.get(uid)
            if record is None or record.phase is Phase.PREPARED:
                return True
            async with self._turns.in_time(record.ref, deadline):
                await self._acts.give_back(record)
        self._telling.released(record)
        return True
