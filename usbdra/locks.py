# SPDX-License-Identifier: Apache-2.0
"""Advisory locks between our own processes on one node: an agent, an exporter, a person's shell.

Owns the lock files. Must not say what they protect; the kernel drops a dead process's locks.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from usbdra.errors import StateError


class ProcessLock:
    """One holder at a time among tasks of this process and among processes, by `path`.

    Not reentrant. The file and its directory are made when missing and are never removed: a
    removed lock file would let two processes lock two different files.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tasks = asyncio.Lock()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Wait for the lock and hold it. Raises StateError when the file cannot be opened."""
        async with self._tasks:
            fd = self._open()
            try:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    await asyncio.to_thread(fcntl.flock, fd, fcntl.LOCK_EX)
                yield
            finally:
                os.close(fd)

    def _open(self) -> int:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateError(f"lock {self._path} cannot be opened: {error}") from error
