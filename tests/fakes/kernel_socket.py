# SPDX-License-Identifier: Apache-2.0
"""The kernel's own reference to a connection, and how it learns of its end."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from contextlib import suppress

from usbdra.transport.ending import LinkEnd


class KernelSocket:
    """What `sockfd_lookup` gives: taken from a number, independent of who closes that number.

    `on_end` is called once when the peer ends the connection.
    """

    def __init__(self, sockfd: int, on_end: Callable[[], None]) -> None:
        try:
            self._sock = socket.socket(fileno=os.dup(sockfd))
        except OSError as error:
            raise OSError(errno.EINVAL, "no such socket") from error
        self._end = LinkEnd(self._sock)
        self._end.ended.add_done_callback(lambda f: None if f.cancelled() else on_end())

    def shutdown(self) -> None:
        """`kernel_sock_shutdown(SHUT_RDWR)` and `sockfd_put`."""
        self._end.close()
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
