# SPDX-License-Identifier: Apache-2.0
"""The end of a long-running part: by signal, in order, once."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from tests.waiting import patience
from usbdra.stopping import until_told


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_work_and_a_second_does_not_cut_its_cleaning(number: int) -> None:
    steps = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()
        finally:
            os.kill(os.getpid(), number)
            for _ in range(3):
                await asyncio.sleep(0)
            steps.append("cleaned")

    async with patience():
        await until_told(work(), "work")
    assert steps == ["cleaned"]
    # Nothing of ours is left: Python's own handlers are there again.
    loop = asyncio.get_running_loop()
    assert not loop.remove_signal_handler(number)


async def test_what_the_work_raises_comes_out() -> None:
    async def work() -> None:
        raise OSError(5, "broken")

    with pytest.raises(OSError, match="broken"):
        await until_told(work(), "work")
