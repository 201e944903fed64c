# SPDX-License-Identifier: Apache-2.0
"""Whose turn it is: one operation at a time for a claim, one agent at a time for a node.

Owns the locks only. During an upgrade two agents of one node serve the kubelet for a while; the
flock makes them take turns, and whoever gets it reads the records anew. Within one agent all
claims share it and go on side by side.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from usbdra.errors import StateError
from usbdra.types import ClaimUid

RETRY_SECONDS = 0.05
"""Between two looks at a lock that the other agent has; flock has no event to wait for."""


class ClaimLocks:
    """A lock for each claim that exists while somebody uses or awaits it."""

    def __init__(self) -> None:
        self._locks: dict[ClaimUid, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def hold(self, uid: ClaimUid) -> AsyncIterator[None]:
        """Wait for the claim's turn; first come, first served."""
        lock, users = self._locks.get(uid, (asyncio.Lock(), 0))
        self._locks[uid] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(uid)
            if users > 1:
                self._locks[uid] = (lock, users - 1)


class NodeLock:
    """The node's flock, held while at least one operation of this agent runs."""

    def __init__(self, path: Path, on_acquired: Callable[[], Awaitable[object]]) -> None:
        """on_acquired: awaited each time the lock comes back from other hands."""
        self._path = path
        self._on_acquired = on_acquired
        self._gate = asyncio.Lock()
        self._users = 0
        self._fd = -1

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Join the operations that share the lock. Raises StateError when it cannot be opened."""
        async with self._gate:
            if not self._users:
                await self._acquire()
            self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._release()

    async def _acquire(self) -> None:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateError(f"{self._path} cannot be opened: {error}") from error
        try:
            while not self._taken():  # noqa: ASYNC110 - flock tells nobody when it is free
                await asyncio.sleep(RETRY_SECONDS)
            await self._on_acquired()
        except BaseException:
            self._release()
            raise

    def _taken(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _release(self) -> None:
        os.close(self._fd)
        self._fd = -1
