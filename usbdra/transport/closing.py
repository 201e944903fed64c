# SPDX-License-Identifier: Apache-2.0
"""Closing sockets that another process may have a hand in.

A descriptor that came from elsewhere, or went there, shares its options with whoever has a copy:
SO_LINGER makes the last close wait for as long as its setter likes, also of a non-blocking socket
(net/ipv4/tcp.c `__tcp_close`), and would stop the event loop for so long.
"""

from __future__ import annotations

import socket
import threading

THREAD_NAME = "usbdra-close"


def close_aside(sock: socket.socket) -> threading.Thread:
    """Close in a thread of its own, which may take as long as the kernel lets it wait."""
    thread = threading.Thread(target=sock.close, name=THREAD_NAME, daemon=True)
    thread.start()
    return thread
