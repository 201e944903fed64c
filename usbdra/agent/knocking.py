# SPDX-License-Identifier: Apache-2.0
"""Nodes that do not answer: one who knocks at each and one who dials it first, for all who wait.

Owns who tries and who waits for that. Sixteen claims that lost one node are sixteen links to make
when it is back, and one packet a second until then. Must not know addresses or claims.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from usbdra.errors import Unreachable
from usbdra.types import NodeName

Knock = Callable[[NodeName, int], Awaitable[bool]]
"""Tries whether a node answers, for the first time, the second, and so on; takes its second when it
does not."""
Connected = Callable[[str, float], None]
"""See importer/dial.py Progress: the first phase that is over is the connection."""


@dataclass(eq=False, slots=True)
class _Door:
    """A node that is knocked at, and how many wait for its answer."""

    task: asyncio.Task[None] | None = None
    waiting: int = 0


class Knocker:
    """See the module."""

    def __init__(self, knock: Knock) -> None:
        self._knock = knock
        self._doors: dict[NodeName, _Door] = {}

    async def answers(self, node: NodeName) -> None:
        """Return as soon as the node answers; who waits last ends the knocking."""
        door = self._doors.get(node)
        if door is None:
            door = self._doors[node] = _Door()
            door.task = asyncio.create_task(self._keep_knocking(node, door))
        assert door.task is not None
        door.waiting += 1
        try:
            await asyncio.shield(door.task)
        finally:
            door.waiting -= 1
            if not door.waiting:
                self._leave(node, door)
                door.task.cancel()

    def require(self, node: NodeName) -> None:
        """Raises Unreachable for a node that is knocked at: its answer is heard of in a second."""
        if node in self._doors:
            raise Unreachable(f"{node} does not answer; it is tried each second")

    async def _keep_knocking(self, node: NodeName, door: _Door) -> None:
        for number in itertools.count(1):
            if await self._knock(node, number):
                break
        # Before anybody is woken: from here on it is dialled.
        self._leave(node, door)

    def _leave(self, node: NodeName, door: _Door) -> None:
        if self._doors.get(node) is door:
            del self._doors[node]


class Scouts:
    """Of several who dial an address at the same time one goes first, up to its connection."""

    def __init__(self) -> None:
        self._out: dict[str, asyncio.Future[bool]] = {}

    @asynccontextmanager
    async def first(self, address: str) -> AsyncIterator[Connected]:
        """Be the one who goes, or wait for him. Call what is given once connected.

        Raises Unreachable when the one who went found nobody there.
        """
        while (other := self._out.get(address)) is not None:
            if not await asyncio.shield(other):
                raise Unreachable(f"{address} did not answer who dialled it just now")
        mine = self._out[address] = asyncio.get_running_loop().create_future()

        def over(found: bool) -> None:
            if not mine.done():
                mine.set_result(found)
                del self._out[address]

        try:
            yield lambda phase, seconds: over(True)
        except Unreachable:
            over(False)
            raise
        finally:
            over(True)
