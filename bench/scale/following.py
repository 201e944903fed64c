# SPDX-License-Identifier: Apache-2.0
"""One kind's objects as a watch tells of them, so that a wait costs no request of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from usbdra.kube.client import KubeClient
from usbdra.kube.types import Kind, Object
from usbdra.kube.watch import Change, Reflector

LIMIT_SECONDS = 300.0


class Following:
    """Use `following`."""

    def __init__(self, admin: KubeClient, kind: Kind, namespace: str | None) -> None:
        self._reflector = Reflector(admin, kind, namespace)
        self._namespace = namespace or ""
        self._news = asyncio.Event()
        self._synced = asyncio.Event()

    async def until(
        self, name: str, done: Callable[[Object | None], bool], seconds: float = LIMIT_SECONDS
    ) -> None:
        """Wait until `done` of an object, None while there is none. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while not done(self._reflector.cache.get((self._namespace, name))):
                self._news.clear()
                await self._news.wait()

    async def _run(self) -> None:
        async for change in self._reflector.run():
            if not isinstance(change, Change):
                self._synced.set()
            self._news.set()


@asynccontextmanager
async def following(
    admin: KubeClient, kind: Kind, namespace: str | None = None
) -> AsyncIterator[Following]:
    """A watch that has begun."""
    made = Following(admin, kind, namespace)
    task = asyncio.create_task(made._run())
    try:
        await made._synced.wait()
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
