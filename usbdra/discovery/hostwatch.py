# SPDX-License-Identifier: Apache-2.0
"""Hears that the host's own use of devices may have changed: mounts, swap, routes.

Owns the descriptors that tell of it; none of these changes makes a uevent, and nothing here
polls. Must not find out what changed (hostuse.py does).

`/proc/<pid>/mountinfo` and `/proc/swaps` are always readable and signal a change by EPOLLPRI
(fs/proc_namespace.c `mounts_poll`, mm/swapfile.c `swaps_poll`), which asyncio cannot wait for: an
epoll set of our own asks for that alone, and is itself readable then.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import select
import socket
from collections.abc import Callable

_log = logging.getLogger(__name__)

FILES = ("proc/1/mountinfo", "proc/self/mountinfo", "proc/swaps")
_ROUTE_GROUPS = 0x40 | 0x400  # linux/rtnetlink.h: RTMGRP_IPV4_ROUTE, RTMGRP_IPV6_ROUTE
_MESSAGE_BYTES = 16384


def open_to_read(path: str) -> int:
    """A descriptor of the file. Raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


class HostWatch:
    """Calls `changed` on the running loop, soon after one or many changes, until `close()`.

    root: "" for the machine itself; below any other root only files that can tell are watched,
    and no routes. settle: seconds in which further changes count as the same.
    """

    def __init__(
        self,
        root: str,
        changed: Callable[[], None],
        *,
        settle: float = 0.05,
        opener: Callable[[str], int] = open_to_read,
    ) -> None:
        self._changed = changed
        self._settle = settle
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._set = select.epoll()
        self._files = [
            descriptor
            for file in FILES
            if (descriptor := self._watched(f"{root}/{file}", opener)) is not None
        ]
        self._routes = _route_socket() if not root else None
        self._loop.add_reader(self._set.fileno(), self._files_changed)
        if self._routes is not None:
            self._loop.add_reader(self._routes.fileno(), self._routes_changed)

    def close(self) -> None:
        """Stop watching. Idempotent."""
        if self._set.closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._set.fileno())
        if self._routes is not None:
            self._loop.remove_reader(self._routes.fileno())
            self._routes.close()
        self._set.close()
        for descriptor in self._files:
            os.close(descriptor)

    def _watched(self, path: str, opener: Callable[[str], int]) -> int | None:
        """The descriptor, None when the file is absent or of a kind that tells nothing."""
        try:
            descriptor = opener(path)
        except OSError as error:
            _log.debug("changes of %s are not heard of: %s", path, error)
            return None
        try:
            self._set.register(descriptor, select.EPOLLPRI | select.EPOLLERR | select.EPOLLET)
        except PermissionError:  # a plain file
            os.close(descriptor)
            return None
        return descriptor

    def _files_changed(self) -> None:
        self._set.poll(0)
        self._soon()

    def _routes_changed(self) -> None:
        while self._routes is not None:
            try:
                self._routes.recv(_MESSAGE_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # lost messages are a change like others
                    _log.error("changes of routes are not heard of any more: %s", error)
                    self._loop.remove_reader(self._routes.fileno())
                    break
        self._soon()

    def _soon(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(self._settle, self._tell)

    def _tell(self) -> None:
        self._timer = None
        self._changed()


def _route_socket() -> socket.socket | None:
    kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK
    try:
        made = socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE)
    except OSError as error:
        _log.debug("changes of routes are not heard of: %s", error)
        return None
    made.bind((0, _ROUTE_GROUPS))
    return made
