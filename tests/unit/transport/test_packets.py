# SPDX-License-Identifier: Apache-2.0
"""Messages on a real Unix socket pair, whole, in pieces, with and without descriptors."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from usbdra._native import sockfd
from usbdra.errors import (
    LinkError,
    NotAuthenticated,
    PeerClosed,
    PeerTimeout,
    ProtocolError,
    Unreachable,
)
from usbdra.transport import packets
from usbdra.transport.packets import HEADER, pack_header
from usbdra.transport.sockets import deadline_in

Pair = tuple[socket.socket, socket.socket]
ME = os.geteuid()


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def pipe_ends() -> tuple[int, int]:
    return os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)


async def test_a_message_and_its_descriptor(pair: Pair) -> None:
    reading, writing = pipe_ends()
    await packets.send(pair[0], 7, b'{"a":1}', deadline_in(1), writing)
    os.close(writing)
    got = await packets.receive(pair[1], 100, deadline_in(1), with_fd=True)
    assert got is not None
    assert (got.kind, got.body) == (7, b'{"a":1}')
    assert got.fd is not None
    os.write(got.fd, b"x")
    assert os.read(reading, 9) == b"x"
    assert not os.get_inheritable(got.fd)
    got.close()
    os.close(reading)


async def test_large_bodies_pass_in_pieces(pair: Pair) -> None:
    body = os.urandom(1 << 20)
    sending = asyncio.create_task(packets.send(pair[0], 1, body, deadline_in(5)))
    got = await packets.receive(pair[1], len(body), deadline_in(5))
    await sending
    assert got == packets.Packet(1, body)


async def test_the_end_at_a_boundary_is_no_error(pair: Pair) -> None:
    await packets.send(pair[0], 1, b"", deadline_in(1))
    pair[0].close()
    assert await packets.receive(pair[1], 0, deadline_in(1)) == packets.Packet(1, b"")
    assert await packets.receive(pair[1], 0, deadline_in(1)) is None


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"GET / HTTP/1.1\r\n", "begins 47 45 54 20 2f 20 48 54 is none of ours"),
        (HEADER.pack(b"UD", 2, 1, 0), "has version 2, not 1"),
        (pack_header(3, 101), "of kind 3 says 101 bytes; 100 are allowed"),
        (pack_header(3, 0xFFFFFFFF), "says 4294967295 bytes"),
    ],
)
async def test_what_is_none_of_ours(pair: Pair, sent: bytes, error: str) -> None:
    pair[0].send(sent)
    with pytest.raises(ProtocolError, match=error):
        await packets.receive(pair[1], 100, deadline_in(1))


@pytest.mark.parametrize("sent", [b"UD", pack_header(1, 9) + b"12345678"])
async def test_half_a_message(pair: Pair, sent: bytes) -> None:
    pair[0].send(sent)
    with pytest.raises(PeerTimeout):
        await packets.receive(pair[1], 100, deadline_in(0.02))
    pair[0].send(sent)
    pair[0].close()
    with pytest.raises((PeerClosed, ProtocolError)):
        await packets.receive(pair[1], 100, deadline_in(1))


async def test_silence_and_a_reader_that_takes_nothing(pair: Pair) -> None:
    with pytest.raises(PeerTimeout):
        await packets.receive(pair[1], 100, deadline_in(0.02))
    with pytest.raises(PeerTimeout):
        await packets.send(pair[0], 1, bytes(1 << 20), deadline_in(0.02))
    reading, writing = pipe_ends()
    with pytest.raises(PeerTimeout):
        await packets.send(pair[0], 1, b"", deadline_in(0.02), reading)
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize(("count", "with_fd"), [(1, False), (2, True), (4, False)])
async def test_descriptors_that_nobody_asked_for_are_closed(
    pair: Pair, count: int, with_fd: bool
) -> None:
    reading, writing = pipe_ends()
    sockfd.send_fds(pair[0].fileno(), pack_header(1, 0), (writing,) * count)
    os.close(writing)
    with pytest.raises(ProtocolError, match="descriptors came with a message"):
        await packets.receive(pair[1], 100, deadline_in(1), with_fd=with_fd)
    assert os.read(reading, 1) == b""  # the last copy of the writing end is gone
    os.close(reading)


@pytest.mark.parametrize("sent", [pack_header(1, 9), pack_header(1, 200), b"????????", b"U"])
async def test_a_descriptor_of_a_bad_message_is_closed(pair: Pair, sent: bytes) -> None:
    reading, writing = pipe_ends()
    sockfd.send_fds(pair[0].fileno(), sent, (writing,))
    os.close(writing)
    with pytest.raises(LinkError):
        await packets.receive(pair[1], 100, deadline_in(0.02), with_fd=True)
    assert os.read(reading, 1) == b""
    os.close(reading)


async def test_a_descriptor_with_the_body_goes_nowhere(pair: Pair) -> None:
    reading, writing = pipe_ends()
    pair[0].send(pack_header(1, 2))
    sockfd.send_fds(pair[0].fileno(), b"{}", (writing,))
    os.close(writing)
    assert await packets.receive(pair[1], 9, deadline_in(1)) == packets.Packet(1, b"{}")
    assert os.read(reading, 1) == b""
    os.close(reading)


async def test_both_ends_prove_who_they_are(tmp_path: Path) -> None:
    path = tmp_path / "broker/socket"
    path.parent.mkdir()
    path.write_text("left by an earlier run")
    with packets.listen(path, ME, 4) as listener:
        assert path.stat().st_mode & 0o777 == 0o600
        with await packets.connect(path, ME, deadline_in(1)):
            theirs, _ = listener.accept()
            with theirs:
                packets.require_user(theirs, ME)
                with pytest.raises(NotAuthenticated, match=f"of user {ME} is not user {ME + 1}"):
                    packets.require_user(theirs, ME + 1)
        with pytest.raises(NotAuthenticated):
            await packets.connect(path, ME + 1, deadline_in(1))


async def test_nobody_listens_or_too_many_wait(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with pytest.raises(Unreachable, match=r"cannot connect to .*socket: No such file"):
        await packets.connect(path, ME, deadline_in(1))
    with (
        packets.listen(path, ME, 0),
        await packets.connect(path, ME, deadline_in(1)),
        pytest.raises(Unreachable),
    ):
        await packets.connect(path, ME, deadline_in(0.05))
    with pytest.raises(Unreachable, match="Connection refused"):
        await packets.connect(path, ME, deadline_in(1))
