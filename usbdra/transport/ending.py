# SPDX-License-Identifier: Apache-2.0
"""Knowing that a connection ended while the kernel's USB/IP threads read it.

Owns a copy of the socket and an epoll set of its own around it. Must not read from the socket,
must not change its state, and wakes nobody for data that passes.
"""

from __future__ import annotations

import asyncio
import select
import socket

from usbdra.transport.closing import close_at_once


class LinkEnd:
    """`ended` is done once the peer closed, the connection broke, or our kernel shut it down.

    Keeps a copy of `sock` until `close()`; the caller still owns the original. The copy keeps
    the descriptor, not the connection: the kernel shuts a link down with
    `kernel_sock_shutdown`, whoever else holds the socket (stub_dev.c, vhci_hcd.c
    `*_shutdown_connection`).

    The inner set asks for RDHUP, HUP and ERR only, edge-triggered: `ep_poll_callback` drops
    wake-ups for data, which carry EPOLLIN alone, so a busy link costs the loop nothing. asyncio
    itself could only watch for readability, which data would signal all the time.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._copy = sock.dup()
        self._inner = select.epoll()
        try:
            self._inner.register(
                self._copy.fileno(),
                select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR | select.EPOLLET,
            )
            self._loop.add_reader(self._inner.fileno(), self._on_ready)
        except BaseException:
            self._inner.close()
            self._copy.close()
            raise

    def _on_ready(self) -> None:
        if self._inner.poll(0) and not self.ended.done():
            self.ended.set_result(None)
        if self.ended.done():
            self._stop()

    def _stop(self) -> None:
        if not self._inner.closed:
            self._loop.remove_reader(self._inner.fileno())
            self._inner.close()
            close_at_once(self._copy)

    def close(self) -> None:
        """Stop watching and close the copy. `ended` is cancelled unless the link had ended.
        Idempotent."""
        self._stop()
        if not self.ended.done():
            self.ended.cancel()
