# SPDX-License-Identifier: Apache-2.0
"""Closing sockets that another process has, or had, a copy of.

A socket's options are shared by all who have it. SO_LINGER makes the last close wait for as long as
its setter likes, also of a non-blocking socket (net/ipv4/tcp.c `__tcp_close`).
"""

from __future__ import annotations

import contextlib
import socket
import struct

_OFF = struct.pack("ii", 0, 0)


def close_at_once(sock: socket.socket) -> None:
    """Close without a wait that was asked for before.

    Whoever asks for it between our two steps, and has closed all other copies, can still do so: a
    thread that others wait for must not close what a hostile process can have made the last copy.
    """
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _OFF)
    sock.close()
