# SPDX-License-Identifier: Apache-2.0
"""Sockets whose maker wants their last close to take long."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.fakes.tcp import TcpPair
from usbdra.transport.closing import close_at_once


@pytest.fixture
def lingering() -> Iterator[TcpPair]:
    """`ours` has more to send than `peer` takes, and would wait an hour for it."""
    with TcpPair() as pair:
        pair.ours.setblocking(False)
        pair.ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
        with suppress(BlockingIOError):
            while True:
                pair.ours.send(bytes(1 << 16))
        yield pair


def test_at_once_what_was_asked_for_is_dropped(lingering: TcpPair) -> None:
    closing = threading.Thread(target=close_at_once, args=(lingering.ours,))
    closing.start()
    closing.join(5)
    assert not closing.is_alive()
    assert lingering.ours.fileno() == -1


def test_at_once_closes_what_is_no_tcp_too() -> None:
    one = socket.socket(socket.AF_UNIX)
    close_at_once(one)
    assert one.fileno() == -1
