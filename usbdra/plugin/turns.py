# SPDX-License-Identifier: Apache-2.0
"""Turns and time limits of operations on claims.

Owns the locks an operation needs and the words for what it was waiting for when its time was
over. Must not know what operations do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from usbdra.errors import ClaimBusy, OutOfTime
from usbdra.plugin.locks import ClaimLocks, NodeLock
from usbdra.state.claims import ClaimRef
from usbdra.types import ClaimUid


class Turns:
    """One for all operations of an agent. `doing` says what each claim's operation waits for."""

    def __init__(self, node_lock: NodeLock) -> None:
        self.node = node_lock
        self.claims = ClaimLocks()
        self.doing: dict[ClaimUid, str] = {}

    @asynccontextmanager
    async def turn(self, uid: ClaimUid, deadline: float) -> AsyncIterator[None]:
        """Hold the claim's lock and the node's.

        deadline: of getting them, on the loop's clock. Raises ClaimBusy, saying what the
        operation that has them is doing.
        """
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout_at(deadline):
                    await stack.enter_async_context(self.claims.hold(uid))
                    await stack.enter_async_context(self.node.hold())
            except TimeoutError as error:
                doing = self.doing.get(uid, "another agent of this node is at work")
                raise ClaimBusy(f"claim {uid} waits for an earlier call: {doing}") from error
            stack.callback(self.doing.pop, uid, None)
            yield

    @asynccontextmanager
    async def in_time(self, ref: ClaimRef, deadline: float) -> AsyncIterator[None]:
        """Raises OutOfTime at the deadline, saying what was waited for."""
        try:
            async with asyncio.timeout_at(deadline):
                yield
        except TimeoutError as error:
            doing = self.doing.get(ref.uid, "waiting")
            raise OutOfTime(f"{ref} ran out of time while {doing}") from error


def after(seconds: float) -> float:
    """A deadline on the running loop's clock."""
    return asyncio.get_running_loop().time() + seconds
