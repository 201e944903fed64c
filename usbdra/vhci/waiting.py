# SPDX-License-Identifier: Apache-2.0
"""Waiting for the kernel: a condition, the events that may change it, a deadline.

Owns one subscription at a time. Events only say when to look again; what counts is always what
`check` reads, so lost or merged events do no harm. Must not know what it waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, suppress
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from usbdra.types import Uevent

T = TypeVar("T")

RESCAN = "rescan"

_FIRST_LOOK = 0.001
_SLOWEST_LOOK = 0.25


class EventSource(Protocol):
    """Whoever has the kernel's uevents (discovery/uevent.py): every subscriber gets each one."""

    def subscribe(self) -> AbstractAsyncContextManager[AsyncIterator[Uevent]]:
        """Events from now on; `rescan` stands for any number of lost ones."""


class Waiter:
    """One subscription, opened before the act whose events are awaited:

    async with Waiter(source) as waiter:
        act()
        done = await waiter.until(check, concerns, timeout=5.0)
    """

    def __init__(self, source: EventSource) -> None:
        self._subscription = source.subscribe()
        self._stream: AsyncIterator[Uevent] | None = None
        self._next: asyncio.Task[Uevent | None] | None = None
        self._events_over = False
        self._bound: set[str] = set()
        self._lost = False

    def is_bound(self, devpath: str) -> bool:
        """True once the driver of this device (or interface) has finished its probe.

        The kernel sends `bind` then (drivers/base/dd.c `driver_bound`), so every node that was
        made in the probe is there. Whatever was waited for, all events since the start count;
        where some were lost, nobody can tell any more and the answer is True.
        """
        return self._lost or devpath in self._bound

    async def __aenter__(self) -> Self:
        self._stream = await self._subscription.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._next is not None:
            self._next.cancel()
            with suppress(asyncio.CancelledError):
                await self._next
            self._next = None
        await self._subscription.__aexit__(kind, error, traceback)

    async def until(
        self,
        check: Callable[[], T | None],
        concerns: Callable[[Uevent], bool],
        *,
        timeout: float,
        stop: asyncio.Future[Any] | None = None,
        reread: bool = False,
    ) -> T | None:
        """What `check` returns as soon as it is not None; None at the deadline or after `stop`.

        `check` is called at once, then after each event that `concerns` it, and a last time at
        the end. A rescan concerns everything; `concerns` is shown it all the same. `timeout` is
        in seconds. `reread` also looks again at growing intervals, 1 ms to 250 ms, for what the
        kernel announces to nobody: a vhci row or a usbip_status that changes sends no event
        (vhci_hcd.c `vhci_device_reset`, stub_dev.c `stub_device_reset` write memory only).
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        pause = _FIRST_LOOK
        while True:
            found = check()
            if found is not None:
                return found
            left = deadline - loop.time()
            if left <= 0 or (stop is not None and stop.done()):
                return None
            look_anyway = reread or self._events_over
            await self._event(
                concerns, loop.time() + min(left, pause if look_anyway else left), stop
            )
            pause = min(pause * 2, _SLOWEST_LOOK)

    async def _event(
        self,
        concerns: Callable[[Uevent], bool],
        deadline: float,
        stop: asyncio.Future[Any] | None,
    ) -> None:
        """Return after an event that concerns the caller, after `stop`, or at the deadline.

        Events that are there already are taken together: one look answers a burst of them.
        """
        loop = asyncio.get_running_loop()
        concerned = False
        while True:
            # With no more events, an event that never comes: what is left is `stop` and the time.
            pending = loop.create_future() if self._events_over else self._pending()
            awaited: set[asyncio.Future[Any]] = {pending} if stop is None else {pending, stop}
            done, _ = await asyncio.wait(
                awaited,
                timeout=0.0 if concerned else max(0.0, deadline - loop.time()),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if pending not in done:
                return
            self._next = None
            event = pending.result()
            if event is None:
                self._events_over = self._lost = True
                return
            self._note(event)
            if concerns(event) or event.action == RESCAN:
                concerned = True

    def _note(self, event: Uevent) -> None:
        if event.action == "bind":
            self._bound.add(event.devpath)
        elif event.action in ("unbind", "remove"):
            self._bound.discard(event.devpath)
        elif event.action == RESCAN:
            self._lost = True

    def _pending(self) -> asyncio.Task[Uevent | None]:
        """The read of the next event; it outlives a deadline, so no event is dropped by one."""
        if self._next is None:
            if self._stream is None:
                raise RuntimeError("a Waiter is used inside `async with`")
            self._next = asyncio.ensure_future(_read(self._stream))
        return self._next


async def _read(stream: AsyncIterator[Uevent]) -> Uevent | None:
    """The next event, None when the source is closed."""
    return await anext(stream, None)


def below(devpath: str) -> Callable[[Uevent], bool]:
    """Events of this device and of everything under it."""
    inside = f"{devpath}/"
    return lambda event: event.devpath == devpath or event.devpath.startswith(inside)
