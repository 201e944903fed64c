# SPDX-License-Identifier: Apache-2.0
"""Keys of objects to be looked at: each once, never two at a time for one key, with back-off.

Owns order, repetition and pauses. Must not know what a key stands for. A key added while it is
being worked on is worked on once more; a key that failed waits, alone, with growing pauses.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from usbdra.dumping import MAX_ITEMS, some
from usbdra.errors import UsbdraError

log = logging.getLogger(__name__)

Handle = Callable[[str], Awaitable[float | None]]
"""Work on one key; the answer is in how many seconds to look again, None for on news only."""
OnDone = Callable[[str, float], None]
"""Hears of each look: `ok` or its error's reason, and how many seconds it took."""


def _nobody(result: str, seconds: float) -> None:
    """Nobody counts."""


class WorkQueue:
    """Use `add`, `add_after` and `run`. `backoff`: shortest and longest pause, in seconds."""

    def __init__(
        self,
        handle: Handle,
        *,
        workers: int = 8,
        backoff: tuple[float, float] = (1.0, 60.0),
        rng: Callable[[float, float], float] = random.uniform,
        on_done: OnDone = _nobody,
    ) -> None:
        self._on_done = on_done
        self._handle = handle
        self._workers = workers
        self._backoff = backoff
        self._rng = rng
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self._dirty: set[str] = set()
        self._active: set[str] = set()
        self._failures: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def add(self, key: str) -> None:
        """Look at the key soon; at once if a worker is free. A failing key keeps its pause."""
        if key not in self._failures or key in self._active:
            self._push(key)

    def add_after(self, key: str, seconds: float) -> None:
        """Look at the key then; an earlier date that is already set stays."""
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= due:
                return
            timer.cancel()
        self._timers[key] = loop.call_at(due, self._fire, key)

    @property
    def depth(self) -> int:
        """Keys that wait for a worker, or are worked on; dates in the future do not count."""
        return len(self._dirty | self._active)

    @property
    def failing(self) -> int:
        """Keys whose last look failed."""
        return len(self._failures)

    def state(self) -> dict[str, object]:
        """For a dump: what is worked on, what waits, and what fails how often."""
        return {
            "active": sorted(self._active)[:MAX_ITEMS],
            "waiting": len(self._dirty - self._active),
            "failing": some(dict(self._failures)),
        }

    async def drained(self) -> None:
        """Wait until nothing is to be done now; dates in the future do not count."""
        await self._ready.join()

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._workers):
                    group.create_task(self._work())
        finally:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    def _push(self, key: str) -> None:
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._active:
            self._ready.put_nowait(key)

    def _fire(self, key: str) -> None:
        del self._timers[key]
        self._push(key)

    async def _work(self) -> None:
        while True:
            key = await self._ready.get()
            self._dirty.discard(key)
            self._active.add(key)
            try:
                await self._once(key)
            finally:
                self._active.discard(key)
                if key in self._dirty:
                    self._ready.put_nowait(key)
                self._ready.task_done()

    async def _once(self, key: str) -> None:
        loop = asyncio.get_running_loop()
        started, result = loop.time(), "InternalError"
        try:
            again = await self._handle(key)
            result = "ok"
        except UsbdraError as error:
            result = error.reason
            log.warning("%s: %s", key, error, extra={"reason": error.reason})
        except Exception:  # a mistake of ours about one object must not cost the others
            log.exception("%s: internal error", key)
        else:
            self._failures.pop(key, None)
            if again is not None:
                self.add_after(key, again)
            return
        finally:
            self._on_done(result, loop.time() - started)
        times = self._failures[key] = self._failures.get(key, 0) + 1
        low, high = self._backoff
        self._dirty.discard(key)
        self.add_after(key, min(low * 2 ** min(times - 1, 16), high) * self._rng(0.8, 1.2))
