# SPDX-License-Identifier: Apache-2.0
"""A word for what a host shows now, and waiting for the next.

Owns the word: another one after each change and in each run of this program, so that an answer
that carries it proves which changes are in it. Must not know what changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator


class Editions:
    """One visitor waits at a time; a later one takes the place of an earlier one, which is
    answered at once."""

    def __init__(self) -> None:
        self._run = uuid.uuid4().hex
        self._number = 0
        self._waiting = asyncio.Event()

    @property
    def now(self) -> str:
        """The word for what is shown now."""
        return f"{self._run}-{self._number}"

    def changed(self) -> None:
        """Something that is shown is different from now on."""
        self._number += 1
        self._waiting.set()

    async def follow(self, changes: AsyncIterator[object]) -> None:
        """Each of them is one."""
        async for _ in changes:
            self.changed()

    async def after(self, seen: str, seconds: float) -> None:
        """Return once the edition is another than `seen`, at the latest after `seconds`."""
        if seen != self.now or not seconds:
            return
        self._waiting.set()
        self._waiting = mine = asyncio.Event()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await mine.wait()
