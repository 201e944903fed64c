# SPDX-License-Identifier: Apache-2.0
"""Kernel uevents: one source, many readers.

Owns the netlink monitor and the fan-out to async subscribers. Must not interpret events; that
is the inventory's work. Nothing here polls: the source's descriptor wakes the event loop.

Lost events (the socket's buffer overran, or a subscriber fell behind) become one event of
action `rescan`, which asks the reader to look at the whole tree again.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Protocol

from usbdra.types import Uevent

_log = logging.getLogger(__name__)

RESCAN = Uevent(action="rescan", devpath="", subsystem="", devtype=None)

RECEIVE_BUFFER = 16 * 1024 * 1024
"""Bytes; a burst of a whole hub tree must fit (SO_RCVBUFFORCE, udev asks for 128 MiB)."""

MAX_DRAIN = 512
"""Events taken in one go, so that a storm cannot hold the event loop."""


class UeventSource(Protocol):
    """Where events come from. `fileno()` is readable while `drain()` has something to give."""

    def fileno(self) -> int:
        """The descriptor to wait on; the source keeps it."""

    def drain(self) -> list[Uevent]:
        """What is there now, in order, without blocking; `RESCAN` in place of lost events."""

    def close(self) -> None:
        """Close the descriptor. Idempotent."""


class NetlinkSource:
    """The kernel's own multicast group, through pyudev; needs no udevd.

    In a network namespace other than the host's, or a user namespace, the kernel sends nothing
    (lib/kobject_uevent.c `uevent_net_broadcast`): see `LiveInventory.self_test`.
    """

    def __init__(self) -> None:
        import pyudev

        self._monitor: Any = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
        try:
            self._monitor.set_receive_buffer_size(RECEIVE_BUFFER)
        except OSError as error:
            if error.errno != errno.EPERM:  # without CAP_NET_ADMIN the default must do
                raise
        self._monitor.start()
        # Of the same socket: to ask for its pending error, which pyudev does not tell.
        self._socket = socket.socket(fileno=os.dup(self._monitor.fileno()))

    def fileno(self) -> int:
        """The netlink socket; it belongs to the monitor."""
        return int(self._monitor.fileno())

    def drain(self) -> list[Uevent]:
        """As the Protocol says; at most `MAX_DRAIN` events."""
        events: list[Uevent] = []
        for _ in range(MAX_DRAIN):
            try:
                device = self._monitor.poll(timeout=0)
            except OSError:
                self._accept_overrun()
                # What came before the gap is in the tree too: one look covers all.
                events = [RESCAN]
                continue
            if device is None:
                break
            events.append(_uevent(device))
        return events

    def _accept_overrun(self) -> None:
        """Take ENOBUFS off the socket; any other error goes up."""
        error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error != errno.ENOBUFS:
            raise OSError(error, f"uevent socket: {os.strerror(error)}")

    def close(self) -> None:
        """Let go of the monitor; libudev closes the socket with it."""
        self._monitor = None
        self._socket.close()


def _uevent(device: Any) -> Uevent:
    properties = tuple((str(k), str(v)) for k, v in device.properties.items())
    return Uevent(
        action=device.action or "",
        devpath=device.device_path,
        subsystem=device.subsystem or "",
        devtype=device.device_type,
        properties=properties,
    )


class UeventHub:
    """Reads one source on the running loop and hands every event to every subscriber.

    Use: `hub.start()` on the loop, `async with hub.subscribe() as events: async for e in events`,
    and `hub.close()`, which ends every subscription.
    """

    def __init__(self, source: UeventSource, *, limit: int = 4096) -> None:
        """`limit`: events a subscriber may lag behind before it is told to rescan."""
        self._source = source
        self._limit = limit
        self._loop: asyncio.AbstractEventLoop | None = None
        self._subscriptions: set[Subscription] = set()

    def start(self) -> None:
        """Begin to read. Needs a running loop; a second call does nothing."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._source.fileno(), self._readable)

    def close(self) -> None:
        """Stop reading, close the source, end all subscriptions. Idempotent."""
        if self._loop is not None:
            self._loop.remove_reader(self._source.fileno())
            self._loop = None
        self._source.close()
        for subscription in tuple(self._subscriptions):
            subscription.end()

    def subscribe(self) -> Subscription:
        """A subscription that is open while its `async with` lasts."""
        return Subscription(self._subscriptions, self._limit)

    def _readable(self) -> None:
        try:
            events = self._source.drain()
        except OSError as error:
            # Subscribers see the end of their events and must look for themselves from then on.
            _log.error("uevents end here: %s", error)
            self.close()
            return
        for subscription in tuple(self._subscriptions):
            subscription.put(events)


class Subscription:
    """One reader's bounded queue of events."""

    def __init__(self, members: set[Subscription], limit: int) -> None:
        self._members = members
        self._limit = limit
        self._queue: deque[Uevent] = deque()
        self._wake = asyncio.Event()
        self._ended = False

    async def __aenter__(self) -> Subscription:
        self._members.add(self)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._members.discard(self)

    def __aiter__(self) -> AsyncIterator[Uevent]:
        return self

    async def __anext__(self) -> Uevent:
        """The next event; the iteration ends when the hub is closed."""
        if not await self.wait():
            raise StopAsyncIteration
        return self._take()

    async def batch(self) -> list[Uevent]:
        """At least one event and all others that wait; an empty list when the hub is closed."""
        await self.wait()
        events = []
        while self._queue:
            events.append(self._take())
        return events

    def put(self, events: list[Uevent]) -> None:
        """Queue events; one too many turns the whole queue into a single rescan."""
        self._queue.extend(events)
        if len(self._queue) > self._limit:
            self._queue.clear()
            self._queue.append(RESCAN)
        if self._queue:
            self._wake.set()

    def end(self) -> None:
        """No more will come; what is queued is still delivered."""
        self._ended = True
        self._members.discard(self)
        self._wake.set()

    async def wait(self) -> bool:
        """Wait till an event is queued, and leave it there; False when the hub is closed."""
        while not self._queue and not self._ended:
            await self._wake.wait()
        return bool(self._queue)

    def _take(self) -> Uevent:
        event = self._queue.popleft()
        if not self._queue and not self._ended:
            self._wake.clear()
        return event
