# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from usbdra.errors import StateError
from usbdra.locks import ProcessLock


async def test_two_processes_take_turns(tmp_path: Path) -> None:
    ours, theirs = ProcessLock(tmp_path / "d/lock"), ProcessLock(tmp_path / "d/lock")
    order: list[str] = []

    async def hold(lock: ProcessLock, name: str) -> None:
        async with lock.held():
            order.append(f"{name} in")
            await asyncio.sleep(0.01)
            order.append(f"{name} out")

    await asyncio.gather(hold(ours, "a"), hold(theirs, "b"), hold(ours, "c"))
    assert len(order) == 6
    assert all(first[0] == then[0] for first, then in zip(order[::2], order[1::2], strict=True))


async def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="lock"):
        async with ProcessLock(tmp_path / "file/lock").held():
            pass
