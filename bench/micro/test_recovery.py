# SPDX-License-Identifier: Apache-2.0
"""An agent that starts on a node with 16 links: until it knows and has written what to do of each.

Records and files are real ones on this disk, kernel and API are fakes that answer at once.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from bench.conftest import Replay, spread
from tests.unit.plugin.claims import remote_claim, usb_fact
from tests.unit.plugin.world import World
from usbdra.state.claims import ClaimRef

LINKS = 16
ROUNDS = 3
GROUP = "recovery of 16 links"


def populated(path: Path) -> tuple[World, list[ClaimRef]]:
    """A world with a claim for each of 16 devices of node a."""
    world = World(path)
    world.kernel.per_hub = LINKS
    for index in range(LINKS):
        world.api.facts["usb-a", f"stick-{index}"] = usb_fact(f"stick-{index}")
    bodies: list[dict[str, Any]] = [
        remote_claim(f"claim-{i}", f"uid-{i}", f"stick-{i}") for i in range(LINKS)
    ]
    return world, world.add(*bodies)


async def prepare(world: World, refs: list[ClaimRef]) -> None:
    """All claims have their devices."""
    first = world.agent()
    for ref in refs:
        await first.preparer.prepare(ref)


def test_all_links_run_on(replay: Replay, tmp_path: Path) -> None:
    """A restart or an upgrade: records, rows, files and API agree."""

    async def rounds() -> list[float]:
        world, refs = populated(tmp_path)
        await prepare(world, refs)
        taken = []
        for _ in range(ROUNDS):
            agent = world.agent()
            start = time.perf_counter()
            assert await agent.recover() == []
            taken.append(time.perf_counter() - start)
        await world.aclose()
        return taken

    seconds = asyncio.run(rounds())
    replay(GROUP, seconds, state="all run on", goal_max_ms=1000, **spread(seconds))


def test_all_links_are_lost(replay: Replay, tmp_path: Path) -> None:
    """The exporters' node went while the agent was away: until each is attached again."""

    async def rounds() -> list[float]:
        world, refs = populated(tmp_path)
        await prepare(world, refs)
        taken = []
        for _ in range(ROUNDS):
            world.kernel.ports.clear()
            agent = world.agent()
            start = time.perf_counter()
            lost = await agent.recover()
            assert len(lost) == LINKS
            for ref in refs:
                assert await agent.preparer.restore(ref) is not None
            taken.append(time.perf_counter() - start)
        await world.aclose()
        return taken

    seconds = asyncio.run(rounds())
    replay(GROUP, seconds, state="all are attached again", goal_max_ms=1000, **spread(seconds))
