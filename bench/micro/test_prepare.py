# SPDX-License-Identifier: Apache-2.0
"""What prepare costs above the kernel's own work: records, files, turns, planning.

The attach itself takes no time here. The yardstick is what must be paid on this disk anyway:
the five durable writes and one removal of a claim's record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tests.unit.plugin.claims import remote_claim
from tests.unit.plugin.records import UID, record
from tests.unit.plugin.world import World
from usbdra.state.claims import ClaimSchema
from usbdra.state.store import RecordStore

GROUP = "prepare and unprepare of a remote claim"
WRITES = 5  # planned, intent, held, prepared, releasing


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    with asyncio.Runner() as runner:
        yield runner.get_loop()


def test_records_alone(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    store = RecordStore(tmp_path, ClaimSchema())
    benchmark.group = GROUP
    benchmark.extra_info["role"] = "yardstick"

    def write() -> None:
        for _ in range(WRITES):
            store.save(UID, record())
        store.delete(UID)

    benchmark(write)


def test_prepare_and_unprepare(
    benchmark: BenchmarkFixture, tmp_path: Path, loop: asyncio.AbstractEventLoop
) -> None:
    world = World(tmp_path)
    (ref,) = world.add(remote_claim())
    agent = world.agent()
    benchmark.group = GROUP

    async def round_trip() -> None:
        await agent.preparer.prepare(ref)
        await agent.preparer.unprepare(ref)

    benchmark(lambda: loop.run_until_complete(round_trip()))
    loop.run_until_complete(world.aclose())
