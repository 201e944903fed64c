# SPDX-License-Identifier: Apache-2.0
"""The agent of a node with 128 devices: its start, its memory, and what it does when idle.

Goals: registered with the kubelet within 3 s of its start, under 80 MiB resident, and nothing
that wakes up to look whether something has changed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bench.cluster.conftest import Plane
from bench.cluster.machine import LIMIT_SECONDS, Machine, resident_mib, scheduled
from bench.cluster.syscalls import trace
from bench.conftest import Replay, spread
from tests.fakes.kubelet import FakeKubelet

DEVICES = 128
STARTS = int(os.environ.get("BENCH_STARTS", "1"))
IDLE_SECONDS = float(os.environ.get("BENCH_IDLE_SECONDS", "5"))
SETTLE_SECONDS = 4.0
"""After the start: longer than the pauses of the agent's notices."""


@asynccontextmanager
async def registered(machine: Machine) -> AsyncIterator[float]:
    """An agent that the kubelet has taken in; seconds from its start to that."""
    started = time.perf_counter()
    machine.start()
    try:
        await asyncio.to_thread(machine.wait_registration)
        async with FakeKubelet(machine.registry) as kubelet:
            await take_in(kubelet)
            yield time.perf_counter() - started
    finally:
        machine.stop()


async def take_in(kubelet: FakeKubelet) -> None:
    """Register the agent as soon as its socket, which is there before it listens, answers."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            if await kubelet.scan():
                return
            await asyncio.sleep(0.01)


@pytest.fixture(scope="module")
def full(plane: Plane) -> Iterator[Machine]:
    with Machine(plane.namespace, plane.account) as machine:
        machine.grow(DEVICES)
        yield machine


def test_start(replay: Replay, full: Machine) -> None:
    """From exec to the kubelet's answer, with the caches of the disk warm."""

    async def once() -> float:
        async with registered(full) as seconds:
            return seconds

    seconds = [asyncio.run(once()) for _ in range(STARTS + 1)][1:]
    replay("agent of 128 devices", seconds, goal_max_ms=3000, **spread(seconds))


def test_idle(replay: Replay, full: Machine, tmp_path: Path) -> None:
    """Memory after the start and after the wait, and all system calls of the wait."""

    async def look() -> dict[str, float]:
        async with registered(full):
            await asyncio.to_thread(full.wait_published)
            await asyncio.sleep(SETTLE_SECONDS)
            used, _ = scheduled(full.pid)
            await asyncio.sleep(IDLE_SECONDS)
            used = scheduled(full.pid)[0] - used
            calls = await asyncio.to_thread(trace, full.pid, IDLE_SECONDS, tmp_path / "strace")
            found = resident_mib(full.pid)
        rate = 60 / IDLE_SECONDS
        found["cpu_ms_a_minute"] = round(used * 1e3 * rate, 1)
        found["calls_a_minute"] = round(calls.total() * rate)
        for (thread, name), number in calls.most_common():
            found[f"{thread}.{name}"] = round(number * rate)
        return found

    found = asyncio.run(look())
    replay("agent of 128 devices", [IDLE_SECONDS], goal_resident_mib=80, **found)
