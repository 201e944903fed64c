# SPDX-License-Identifier: Apache-2.0
"""Waiting in tests for what must come, however busy the machine is.

Owns the one limit of such waits. It is below what pytest gives a test, so that a failure names what
did not come, and below the 30 s and more that tests give the product where it must not need them.
What must come before a time limit of the product's own is over says `within`: less than that limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVarTuple

Given = TypeVarTuple("Given")

PATIENCE_S = 25.0
PAUSE_S = 0.001


def patience() -> asyncio.Timeout:
    """`async with patience():` around one wait. Raises TimeoutError."""
    return asyncio.timeout(PATIENCE_S)


async def until(
    done: Callable[[*Given], object], *given: *Given, within: float = PATIENCE_S
) -> None:
    """Let the loop turn until `done`, which may be given what a loop's turn is about.

    Raises TimeoutError.
    """
    async with asyncio.timeout(within):
        while not done(*given):
            await asyncio.sleep(PAUSE_S)
