# SPDX-License-Identifier: Apache-2.0
"""Blocking file work off the event loop, never left behind.

Owns one helper. A cancelled caller waits for its work to end, so that nothing it started can
overtake what is done next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[..., T], *args: object) -> T:
    """Run `work` in the loop's default threads and return what it returns."""
    future = asyncio.get_running_loop().run_in_executor(None, work, *args)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        raise
