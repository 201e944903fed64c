# SPDX-License-Identifier: Apache-2.0
"""A desk on a thread and a loop of its own, in front of a broker on the agent's loop.

A hostile exporter chooses which descriptors its messages carry, and closing one can take as long as
it likes: the last close of a TCP socket waits for its peer if SO_LINGER says so. What we refuse to
take, and what still waits in a Unix socket that we close, the kernel closes in the thread that does
so. On this thread that costs the exporter its service; on the agent's it would stop the node's
pods. Must not do anything but pass on calls.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from usbdra.exporter.broker import Broker, Granted, GrantRequest, Peer
from usbdra.exporter.desk import Desk
from usbdra.types import RemoteDevice

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

STOP_SECONDS = 10.0
"""How long a stop waits for grants under way; a thread that is stuck ends with the process."""


class DeskThread:
    """`async with`: a desk made by `make` serves, its broker's work is done on this loop."""

    def __init__(self, broker: Broker, make: Callable[[Broker], Desk]) -> None:
        self._broker = broker
        self._make = make
        self._stop: Callable[[], object] = lambda: None

    async def __aenter__(self) -> Self:
        """Start. Raises what the desk's own start does."""
        loop = asyncio.get_running_loop()
        desk = self._make(_OnLoop(self._broker, loop))
        started: asyncio.Future[None] = loop.create_future()
        self._ended: asyncio.Future[None] = loop.create_future()

        def run() -> None:
            failure: BaseException | None = None
            try:
                asyncio.run(self._serve(desk, loop, started))
            except BaseException as error:
                failure = error
            if failure is None or started.done():
                loop.call_soon_threadsafe(_settle, self._ended, failure)
            else:
                loop.call_soon_threadsafe(_settle, started, failure)

        threading.Thread(target=run, name="usbdra-desk", daemon=True).start()
        await started
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop; grants that were not handed over are given back, as far as the thread gets."""
        self._stop()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self.wait()
        except TimeoutError:
            _log.error("the exporter's desk is stuck in a close; it ends with this process")

    async def wait(self) -> None:
        """Until the thread ends, which it does not do by itself unless something is wrong: raises
        what that was."""
        await asyncio.shield(self._ended)

    async def _serve(
        self, desk: Desk, agent: asyncio.AbstractEventLoop, started: asyncio.Future[None]
    ) -> None:
        """On the thread: serve until told to stop."""
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(stop.set)
        async with desk:
            agent.call_soon_threadsafe(_settle, started, None)
            await stop.wait()


def _settle(future: asyncio.Future[None], error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


class _OnLoop:
    """See Broker. Called on the desk's loop, works on the agent's. Who is cancelled here does not
    wait for the work to be undone there; it is, all the same."""

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self._broker = broker
        self._loop = loop

    async def inventory(self, peer: Peer) -> Sequence[RemoteDevice]:
        """As the broker does."""
        return await self._there(self._broker.inventory(peer))

    async def acquire(self, request: GrantRequest, peer: Peer, sock: socket.socket) -> Granted:
        """As the broker does; a grant that comes while this is cancelled goes back."""
        hand = _Hand()

        async def acquire() -> Granted:
            granted = await self._broker.acquire(request, peer, sock)
            if not hand.give(granted):
                await self._broker.abandon(granted)
            return granted

        try:
            return await self._there(acquire())
        except asyncio.CancelledError:
            granted = hand.withdraw()
            if granted is not None:
                asyncio.run_coroutine_threadsafe(self._broker.abandon(granted), self._loop)
            raise

    async def hand_over(self, granted: Granted, sock: socket.socket) -> None:
        """As the broker does."""
        await self._there(self._broker.hand_over(granted, sock))

    async def abandon(self, granted: Granted) -> None:
        """As the broker does."""
        await self._there(self._broker.abandon(granted))

    async def _there(self, work: Coroutine[Any, Any, _T]) -> _T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))


class _Hand:
    """Passes a grant between the two loops, so that exactly one of them has it at any time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._granted: Granted | None = None
        self._withdrawn = False

    def give(self, granted: Granted) -> bool:
        """On the agent's loop: False when nobody takes it any more."""
        with self._lock:
            self._granted = granted
            return not self._withdrawn

    def withdraw(self) -> Granted | None:
        """On the desk's loop: nobody takes it from now on; what was given already, if anything."""
        with self._lock:
            self._withdrawn = True
            return self._granted
