# SPDX-License-Identifier: Apache-2.0
"""TCP_INFO by socket diagnosis: on this kernel's own connections, and on bad answers."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usbdra.transport.measure import Counters, answers, links_to, request
from usbdra.transport.watch import endpoints_of

Pair = tuple[socket.socket, socket.socket, int]


@pytest.fixture(params=["127.0.0.1", "::1"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.create_server((request.param, 0), family=family) as server:
        port = server.getsockname()[1]
        with socket.create_connection((request.param, port)) as client:
            accepted, _ = server.accept()
            with accepted:
                yield client, accepted, port


def test_bytes_of_a_link_are_counted_both_ways(pair: Pair) -> None:
    client, accepted, port = pair
    client.sendall(b"x" * 1000)
    assert accepted.recv(1000, socket.MSG_WAITALL) == b"x" * 1000
    accepted.sendall(b"y" * 300)
    assert client.recv(300, socket.MSG_WAITALL) == b"y" * 300
    (found,) = links_to(port).items()  # the accepted end is from this port, not to it
    ends, counters = found
    assert ends == endpoints_of(client)
    assert counters.received == 300
    assert counters.sent in (1000, 1001)  # the kernel counts the SYN on some versions
    assert 0 < counters.rtt < 10_000_000
    assert counters.retransmits == 0


def test_connections_to_other_ports_are_not_told_of(pair: Pair) -> None:
    assert links_to(1) == {}


def feed(*datagrams: bytes) -> dict[object, Counters]:
    waiting = list(datagrams)
    return dict(answers(lambda: waiting.pop(0) if waiting else b""))


def test_the_kernels_error_is_raised() -> None:
    error = struct.pack("=IHHIIi", 36, 2, 0, 1, 0, -2) + bytes(16)
    with pytest.raises(OSError, match="socket diagnosis"):
        feed(error)


def test_a_cut_error_is_an_error() -> None:
    with pytest.raises(OSError, match="socket diagnosis"):
        feed(struct.pack("=IHHII", 16, 2, 0, 1, 0))


def test_a_message_without_info_is_left_out_and_the_end_ends() -> None:
    bare = struct.pack("=IHHII", 88, 20, 0, 1, 0) + bytes(72)
    done = struct.pack("=IHHII", 16, 3, 0, 1, 0)
    assert feed(bare + done, b"never read") == {}


@given(st.lists(st.binary(max_size=300), max_size=5))
def test_any_answer_is_read_to_an_end(datagrams: list[bytes]) -> None:
    with suppress(OSError):  # the kernel's own word for an error
        feed(*datagrams)


def test_a_request_has_the_size_that_the_kernel_asks_for() -> None:
    assert len(request(socket.AF_INET, 3241)) == 16 + 56  # sizeof(struct inet_diag_req_v2)
