# SPDX-License-Identifier: Apache-2.0
"""Supervision of what prepared claims hold: hear of losses, attach again with growing pauses.

Owns when a claim is restored, and when that is given up. Hears from the kernel only: ends of
links (transport/watch.py) and removals of devices (uevents). Must not attach anything itself
(plugin/prepare.py does) and keeps no claim of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from usbdra.errors import PeerRefused, Refused, Unreachable, UsbdraError
from usbdra.state.claims import ClaimRecord, ClaimRef
from usbdra.types import ClaimUid, Endpoints, Uevent
from usbdra.vhci.waiting import RESCAN, EventSource

log = logging.getLogger(__name__)


class Losses(Protocol):
    """What of plugin/losses.py is used here."""

    def link_ended(self, link: Endpoints) -> ClaimRef | None:
        """The claim whose device used this connection."""
        ...

    async def check(self) -> Sequence[ClaimRef]:
        """All claims that lack something now."""
        ...

    def lacks_local(self, uid: ClaimUid) -> bool:
        """Whether the claim waits for a plug into this node."""
        ...


Answers = Callable[[ClaimRef], Coroutine[Any, Any, bool]]
"""Returns True when the node answers again that has what the claim lacks, False at once when it
cannot be told."""


async def _unknown(ref: ClaimRef) -> bool:
    return False


class Cause(Enum):
    """What was heard first of a loss (metrics/families.py LOSSES)."""

    LINK = "LinkEnded"
    DEVICE = "DeviceGone"
    START = "FoundAtStart"


Restore = Callable[[ClaimRef], Coroutine[Any, Any, ClaimRecord | None]]
"""Attaches again what a claim lost; None when there is nothing to restore any more."""


@dataclass(frozen=True, slots=True)
class Pauses:
    """Seconds. The pause before an attempt doubles from `first` to `longest`, each time longer or
    shorter by up to the `jitter` part of it, so that nodes that lost one exporter do not return
    all at once. What held for `stable` is tried at once when it is lost; a flapping link keeps
    its pauses (R25), and an attempt that was denied is not repeated without another loss.

    A node that does not answer is tried again as soon as it does, which is looked for until
    `knocking` after the loss: a link is back soon after the network, whatever the pauses were.

    `at_once` attempts run at the same time, for they share the hubs and the processor: more would
    end later, each of them. One that hangs ends with its time limit (plugin/prepare.py).
    """

    first: float = 0.5
    longest: float = 60.0
    jitter: float = 0.25
    stable: float = 60.0
    knocking: float = 900.0
    at_once: int = 16

    def after(self, pause: float) -> float:
        """The pause after this one."""
        return min(max(pause * 2, self.first), self.longest)


@dataclass(slots=True)
class _Lost:
    """A claim that is being restored, or was."""

    pause: float = 0.0
    lost_at: float = 0.0
    ended_at: float = 0.0
    again: bool = False
    silent: bool = False
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Supervisor:
    """See module. `random` gives numbers from 0 to 1. Run `run`; all else is on its loop."""

    def __init__(
        self,
        losses: Losses,
        restore: Restore,
        events: EventSource,
        *,
        random: Callable[[], float],
        pauses: Pauses | None = None,
        answers: Answers = _unknown,
        on_lost: Callable[[Cause], None] = lambda cause: None,
        on_tried: Callable[[str], None] = lambda result: None,
    ) -> None:
        """on_lost hears of each loss; on_tried of each attempt, `ok` or its error's reason."""
        self._losses = losses
        self._restore = restore
        self._events = events
        self._random = random
        self._pauses = pauses or Pauses()
        self._answers = answers
        self._on_lost = on_lost
        self._on_tried = on_tried
        self._claims: dict[ClaimUid, _Lost] = {}
        self._look = asyncio.Event()
        self._slots = asyncio.Semaphore(self._pauses.at_once)

    async def run(self) -> None:
        """Follow events until cancelled; ends the restoring of all claims with itself."""
        try:
            async with asyncio.TaskGroup() as group, self._events.subscribe() as events:
                group.create_task(self._look_when_asked())
                self._look.set()
                async for event in events:
                    if _concerns(event):
                        self._look.set()
        finally:
            tasks = [one.task for one in self._claims.values() if one.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def link_ended(self, link: Endpoints | None) -> None:
        """A connection of this node is over; None: some were not told, look at all claims."""
        if link is None:
            self._look.set()
            return
        ref = self._losses.link_ended(link)
        if ref is not None:
            self.restore(ref, Cause.LINK)

    def devices_changed(self) -> None:
        """The node's own devices changed: claims that wait for one try now."""
        for uid, lost in self._claims.items():
            if self._losses.lacks_local(uid):
                lost.wake.set()

    def restore(self, ref: ClaimRef, cause: Cause) -> None:
        """Attach again what this claim lost, now or as soon as its pauses allow."""
        self._forget_calm()
        lost = self._claims.setdefault(ref.uid, _Lost())
        if lost.task is not None:
            lost.again = True
            return
        self._on_lost(cause)
        lost.lost_at, lost.silent = self._now(), False
        lost.task = asyncio.create_task(self._keep_restoring(ref, lost))

    @property
    def restoring(self) -> int:
        """Claims that lack something now."""
        return sum(1 for lost in self._claims.values() if lost.task is not None)

    async def _look_when_asked(self) -> None:
        """One look at a time; what is asked for during a look gets another one."""
        while True:
            await self._look.wait()
            self._look.clear()
            try:
                lacking = await self._losses.check()
            except UsbdraError as error:  # vhci went away with its module: nothing to attach to
                log.error("claims cannot be looked at: %s", error)
                continue
            for ref in lacking:
                self.restore(ref, Cause.DEVICE)

    async def _keep_restoring(self, ref: ClaimRef, lost: _Lost) -> None:
        try:
            while True:
                await self._sleep(ref, lost)
                lost.pause = self._pauses.after(lost.pause)
                try:
                    record = await self._attempt(ref, lost)
                except UsbdraError as error:
                    self._on_tried(error.reason)
                    lost.silent = isinstance(error, Unreachable)
                    facts = {"claim": str(ref), "reason": error.reason}
                    if _denied(error):
                        log.warning("%s is not attached again: %s", ref, error, extra=facts)
                        lost.pause = self._pauses.longest
                        return
                    log.warning("%s is not whole again: %s", ref, error, extra=facts)
                    continue
                except Exception:  # our own bug must not end the watch over a claim in use
                    self._on_tried("InternalError")
                    log.exception("%s is not whole again", ref)
                    continue
                if record is not None:
                    self._on_tried("ok")
                if record is not None and lost.again:
                    continue
                state = "over" if record is None else "whole again"
                log.info("%s is %s", ref, state, extra={"claim": str(ref)})
                return
        finally:
            lost.task = None
            lost.ended_at = self._now()

    async def _attempt(self, ref: ClaimRef, lost: _Lost) -> ClaimRecord | None:
        async with self._slots:
            lost.again = lost.silent = False
            return await self._restore(ref)

    def _forget_calm(self) -> None:
        """What was lost and is whole again for some time starts afresh at its next loss."""
        now = self._now()
        for uid, lost in list(self._claims.items()):
            if lost.task is None and now - lost.ended_at >= self._pauses.stable:
                del self._claims[uid]

    async def _sleep(self, ref: ClaimRef, lost: _Lost) -> None:
        """The pause, or less when a device comes; for a silent node until it answers."""
        lost.wake.clear()
        spread = 1 + self._pauses.jitter * (2 * self._random() - 1)
        knocking = lost.silent and self._now() - lost.lost_at < self._pauses.knocking
        try:
            async with asyncio.timeout(lost.pause * spread) as limit:
                if knocking:
                    pause, longest = limit.when(), self._now() + self._pauses.longest * spread
                    limit.reschedule(longest)
                    if await self._answers(ref):
                        return
                    limit.reschedule(pause)
                await lost.wake.wait()
        except TimeoutError:
            pass

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _concerns(event: Uevent) -> bool:
    """A device went: one of ours may have. The rest of the kernel's events says nothing of that."""
    gone = event.action == "remove" and event.devtype == "usb_device"
    return gone or event.action == RESCAN


def _denied(error: UsbdraError) -> bool:
    """The exporter says that the claim has no right to the device (R26); other refusals pass."""
    return isinstance(error, PeerRefused) and error.peer_reason == Refused.reason
