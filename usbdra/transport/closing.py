# SPDX-License-Identifier: Apache-2.0
"""Closing sockets that another process may have a hand in.

A descriptor that came from elsewhere, or went there, shares its options with whoever has a copy:
SO_LINGER makes the last close wait for as long as its setter likes, also of a non-blocking socket
(net/ipv4/tcp.c `__tcp_close`), and would stop the event loop for so long.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

THREAD_NAME = "usbdra-close"
_OFF = struct.pack("ii", 0, 0)


def close_aside(sock: socket.socket) -> threading.Thread:
    """Close in a thread of its own, which may take as long as the kernel lets it wait."""
    thread = threading.Thread(target=sock.close, name=THREAD_NAME, daemon=True)
    thread.start()
    return thread


def close_at_once(sock: socket.socket) -> None:
    """Close without a wait that was asked for before; for copies that are hardly ever the last.

    Whoever asks for it between our two steps, and has closed all other copies, can still do so:
    `close_aside` is for descriptors of processes that may try.
    """
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _OFF)
    sock.close()
