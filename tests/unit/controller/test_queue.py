# SPDX-License-Identifier: Apache-2.0
"""The queue of keys: once each, never two at a time for one key, pauses after failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from usbdra.controller.queue import WorkQueue
from usbdra.errors import UsbdraError

Handle = Callable[[str], Awaitable[float | None]]


@asynccontextmanager
async def running(handle: Handle, workers: int = 2, low: float = 0.01) -> AsyncIterator[WorkQueue]:
    queue = WorkQueue(handle, workers=workers, backoff=(low, low * 4), rng=lambda a, b: 1.0)
    task = asyncio.create_task(queue.run())
    try:
        yield queue
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_key_added_many_times_is_worked_on_once() -> None:
    seen: list[str] = []

    async def handle(key: str) -> None:
        seen.append(key)

    async with running(handle) as queue:
        for key in ("a", "b", "a", "a"):
            queue.add(key)
        await queue.drained()
    assert sorted(seen) == ["a", "b"]


async def test_a_key_added_during_its_work_is_worked_on_again_and_never_twice_at_once() -> None:
    active, most, rounds = 0, 0, 0
    started, go = asyncio.Event(), asyncio.Event()

    async def handle(key: str) -> None:
        nonlocal active, most, rounds
        active, rounds = active + 1, rounds + 1
        most = max(most, active)
        started.set()
        await go.wait()
        active -= 1

    async with running(handle) as queue:
        queue.add("a")
        await started.wait()
        queue.add("a")
        queue.add("a")
        await asyncio.sleep(0)
        go.set()
        await queue.drained()
    assert (most, rounds) == (1, 2)


async def test_a_failing_key_waits_with_growing_pauses_and_costs_no_other() -> None:
    times: list[float] = []
    done, other = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def handle(key: str) -> None:
        if key == "other":
            other.set()
            return
        times.append(loop.time())
        if len(times) < 3:
            raise UsbdraError("not today")
        done.set()

    async with running(handle, workers=1, low=0.1) as queue:
        queue.add("bad")
        await queue.drained()
        assert queue.failing == 1
        queue.add("bad")  # news does not shorten the pause
        queue.add("other")
        await other.wait()
        assert len(times) == 1
        await done.wait()
    assert queue.failing == 0
    assert times[1] - times[0] >= 0.1
    assert times[2] - times[1] >= 0.2


async def test_an_internal_error_is_retried_like_any_other() -> None:
    done = asyncio.Event()
    tries = 0

    async def handle(key: str) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise KeyError("a mistake")
        done.set()

    async with running(handle) as queue:
        queue.add("a")
        await done.wait()
    assert tries == 2


async def test_the_earlier_of_two_dates_counts_and_the_answer_sets_the_next() -> None:
    loop = asyncio.get_running_loop()
    times: list[float] = []
    second = asyncio.Event()

    async def handle(key: str) -> float | None:
        times.append(loop.time())
        if len(times) == 2:
            second.set()
            return None
        return 0.02

    async with running(handle) as queue:
        begun = loop.time()
        queue.add_after("a", 0.01)
        queue.add_after("a", 5.0)
        await second.wait()
    assert 0.01 <= times[0] - begun < 1.0
    assert times[1] - times[0] >= 0.02


async def test_news_during_a_retry_is_not_lost() -> None:
    rounds = 0
    retrying, go, third = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handle(key: str) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            raise UsbdraError("not today")
        if rounds == 2:
            retrying.set()
            await go.wait()
        else:
            third.set()

    async with running(handle) as queue:
        queue.add("a")
        await retrying.wait()
        queue.add("a")
        go.set()
        await third.wait()
