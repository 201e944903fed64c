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

from usbdra.transport.measure import Counters, _encrypted, answers, links_to, request
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


def test_an_exporters_end_is_found_by_its_own_port(pair: Pair) -> None:
    _, accepted, port = pair
    (ends,) = links_to(port, served=True)
    assert ends == endpoints_of(accepted)


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


def attribute(kind: int, body: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(body), kind) + body + bytes(-len(body) % 4)


@pytest.mark.parametrize(
    ("tx", "rx", "encrypted"), [(2, 2, True), (3, 2, True), (2, 1, False), (1, 1, False)]
)
def test_the_kernel_says_whether_it_encrypts_both_ways(tx: int, rx: int, encrypted: bool) -> None:
    """As Linux 6.12 answers for a socket with kernel TLS: ULP's name, then nested TLS facts."""
    confs = attribute(3, struct.pack("=H", tx)) + attribute(4, struct.pack("=H", rx))
    tls = attribute(2 | 0x8000, attribute(1, struct.pack("=H", 0x0304)) + confs)
    ulp = attribute(19 | 0x8000, attribute(1, b"tls\0") + tls)
    # a connection from 10.0.0.1:5 to 10.0.0.2:3241
    ends = struct.pack("!HH", 5, 3241) + b"\x0a\0\0\1" + bytes(12) + b"\x0a\0\0\2" + bytes(12)
    sock = struct.pack("=BBBB", socket.AF_INET, 1, 0, 0) + ends + bytes(72 - 4 - len(ends))
    body = sock + attribute(2, bytes(136)) + ulp
    (found,) = feed(struct.pack("=IHHII", 16 + len(body), 20, 2, 1, 0) + body).values()
    assert found.encrypted is encrypted


@pytest.mark.parametrize("conf", [b"", b"\2", b"\2\0\0"])
def test_a_word_of_another_size_is_no_encryption(conf: bytes) -> None:
    tls = attribute(2, attribute(3, conf) + attribute(4, struct.pack("=H", 2)))
    assert not _encrypted(tls)


@given(st.lists(st.binary(max_size=300), max_size=5))
def test_any_answer_is_read_to_an_end(datagrams: list[bytes]) -> None:
    with suppress(OSError):  # the kernel's own word for an error
        feed(*datagrams)


def test_a_request_has_the_size_that_the_kernel_asks_for() -> None:
    assert len(request(socket.AF_INET, 3241)) == 16 + 56  # sizeof(struct inet_diag_req_v2)
