# SPDX-License-Identifier: Apache-2.0
"""Turns: one operation a claim, one agent a node, all claims of an agent side by side."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from usbdra.errors import StateError
from usbdra.plugin.locks import ClaimLocks, NodeLock
from usbdra.types import ClaimUid

A, B = ClaimUid("a"), ClaimUid("b")


async def test_calls_for_one_claim_come_one_after_another() -> None:
    locks, order = ClaimLocks(), []
    gate = asyncio.Event()

    async def call(number: int) -> None:
        async with locks.hold(A):
            order.append(f"in {number}")
            await gate.wait()
            order.append(f"out {number}")

    calls = [asyncio.create_task(call(n)) for n in range(3)]
    await asyncio.sleep(0)
    async with locks.hold(B):
        order.append("other claim")
    gate.set()
    await asyncio.gather(*calls)
    assert order == ["in 0", "other claim", "out 0", "in 1", "out 1", "in 2", "out 2"]


async def test_locks_do_not_pile_up() -> None:
    locks = ClaimLocks()
    async with locks.hold(A):
        waiting = asyncio.create_task(_use(locks))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert locks._locks == {}


async def _use(locks: ClaimLocks) -> None:
    async with locks.hold(A):
        pass


class Agent:
    def __init__(self, path: Path) -> None:
        self.reloads = 0
        self.lock = NodeLock(path, self.reload)

    async def reload(self) -> None:
        self.reloads += 1


async def test_r42_one_agent_of_a_node_at_a_time(tmp_path: Path) -> None:
    old, new = Agent(tmp_path / "d" / "lock"), Agent(tmp_path / "d" / "lock")
    async with old.lock.hold():
        async with old.lock.hold():
            assert old.reloads == 1, "claims of one agent share the lock"
        waiting = asyncio.create_task(_hold(new))
        await asyncio.sleep(0.01)
        assert new.reloads == 0
    await waiting
    assert new.reloads == 1
    async with old.lock.hold():
        assert old.reloads == 2, "who gets the lock back reads the records anew"


async def _hold(agent: Agent) -> None:
    async with agent.lock.hold():
        pass


async def test_a_reload_that_fails_leaves_the_lock_free(tmp_path: Path) -> None:
    async def fail() -> None:
        raise StateError("records cannot be read")

    lock = NodeLock(tmp_path / "lock", fail)
    with pytest.raises(StateError):
        async with lock.hold():
            raise AssertionError("not reached")
    other = Agent(tmp_path / "lock")
    async with asyncio.timeout(1), other.lock.hold():
        assert other.reloads == 1


async def test_waiting_can_be_given_up(tmp_path: Path) -> None:
    first, second = Agent(tmp_path / "lock"), Agent(tmp_path / "lock")
    async with first.lock.hold():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), second.lock.hold():
                raise AssertionError("not reached")
    async with second.lock.hold():
        assert second.reloads == 1


async def test_a_lock_file_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(StateError, match=r"lock cannot be opened: .*Is a directory"):
        async with Agent(tmp_path / "lock").lock.hold():
            raise AssertionError("not reached")
