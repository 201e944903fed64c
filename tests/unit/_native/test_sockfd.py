# SPDX-License-Identifier: Apache-2.0
"""Descriptors over Unix sockets: what arrives, what is closed, who keeps what."""

from __future__ import annotations

import array
import errno
import fcntl
import os
import socket
from collections.abc import Iterator

import pytest

from tests.unit._native.failures import fails_on_fd
from usbdra._native import sockfd

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(params=[socket.SOCK_STREAM, socket.SOCK_SEQPACKET], ids=["stream", "packets"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    left, right = socket.socketpair(socket.AF_UNIX, request.param)
    with left, right:
        yield left, right


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def send_raw(sock: socket.socket, data: bytes, fds: list[int]) -> None:
    control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
    assert sock.sendmsg([data], control) == len(data)


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_data_and_descriptors_arrive(pair: Pair, pipe: tuple[int, int]) -> None:
    left, right = pair
    sockfd.send_fds(left.fileno(), b"take these", pipe)
    data, fds = sockfd.recv_fds(right.fileno(), 100, 4)
    assert data == b"take these"
    assert len(fds) == 2
    os.write(fds[1], b"through")
    assert os.read(pipe[0], 10) == b"through"
    assert sockfd.open_fds() in (-1, 2)
    for fd in fds:
        assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
        os.close(fd)
    assert sockfd.open_fds() in (-1, 0)


def test_sender_keeps_its_own(pair: Pair, pipe: tuple[int, int]) -> None:
    left, right = pair
    sockfd.send_fds(left.fileno(), b"x", (pipe[0],))
    _, fds = sockfd.recv_fds(right.fileno(), 1, 1)
    os.close(fds[0])
    assert fcntl.fcntl(pipe[0], fcntl.F_GETFD) >= 0


def test_no_descriptors(pair: Pair) -> None:
    left, right = pair
    sockfd.send_fds(left.fileno(), b"just text", ())
    assert sockfd.recv_fds(right.fileno(), 100, 0) == (b"just text", [])


def test_end_of_stream(pair: Pair) -> None:
    left, right = pair
    left.close()
    assert sockfd.recv_fds(right.fileno(), 100, 4) == (b"", [])


@pytest.mark.parametrize(("sent", "wanted"), [(1, 0), (2, 1), (5, 4), (253, 4)])
def test_more_descriptors_than_wanted_are_all_closed(
    pair: Pair, pipe: tuple[int, int], sent: int, wanted: int
) -> None:
    left, right = pair
    send_raw(left, b"x", [pipe[0]] * sent)
    before = descriptors()
    with fails_on_fd(errno.EMSGSIZE, "recv_fds", right.fileno()):
        sockfd.recv_fds(right.fileno(), 10, wanted)
    assert descriptors() == before
    assert sockfd.open_fds() in (-1, 0)


def test_all_the_kernel_can_carry(pair: Pair, pipe: tuple[int, int]) -> None:
    left, right = pair
    send_raw(left, b"x", [pipe[0]] * 253)
    _, fds = sockfd.recv_fds(right.fileno(), 1, 253)
    assert len(set(fds)) == 253
    for fd in fds:
        os.close(fd)


def test_cut_message_is_refused_and_its_descriptors_closed(pipe: tuple[int, int]) -> None:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with left, right:
        sockfd.send_fds(left.fileno(), b"longer than ten bytes", pipe)
        before = descriptors()
        with fails_on_fd(errno.EMSGSIZE, "recv_fds", right.fileno()):
            sockfd.recv_fds(right.fileno(), 10, 4)
        assert descriptors() == before


def test_descriptors_that_hide_behind_an_empty_packet_are_closed(pipe: tuple[int, int]) -> None:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with left, right:
        send_raw(left, b"", [pipe[0]])
        before = descriptors()
        with fails_on_fd(errno.EMSGSIZE, "recv_fds", right.fileno()):
            sockfd.recv_fds(right.fileno(), 10, 4)
        assert descriptors() == before


def test_credentials_beside_the_descriptors_are_no_harm(pair: Pair, pipe: tuple[int, int]) -> None:
    left, right = pair
    right.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    sockfd.send_fds(left.fileno(), b"x", (pipe[0],))
    data, fds = sockfd.recv_fds(right.fileno(), 10, 1)
    assert (data, len(fds)) == (b"x", 1)
    os.close(fds[0])


def test_stream_gives_what_is_there(pair: Pair) -> None:
    left, right = pair
    if left.type == socket.SOCK_STREAM:
        sockfd.send_fds(left.fileno(), b"abcdef", ())
        assert sockfd.recv_fds(right.fileno(), 4, 0)[0] == b"abcd"
        assert sockfd.recv_fds(right.fileno(), 4, 0)[0] == b"ef"
    else:
        sockfd.send_fds(left.fileno(), b"ab", ())
        assert sockfd.recv_fds(right.fileno(), 4, 0)[0] == b"ab"


def test_largest_message(pair: Pair) -> None:
    left, right = pair
    data = os.urandom(65536)
    sockfd.send_fds(left.fileno(), data, ())
    received = b""
    while len(received) < len(data):
        received += sockfd.recv_fds(right.fileno(), 65536, 0)[0]
    assert received == data


def test_a_stream_that_takes_only_a_part_is_an_error() -> None:
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
        with fails_on_fd(errno.EIO, "send_fds", left.fileno()):
            for _ in range(64):
                sockfd.send_fds(left.fileno(), b"x" * 65536, ())


def test_errors_keep_their_number(pair: Pair, pipe: tuple[int, int]) -> None:
    left, right = pair
    for sock in pair:
        sock.setblocking(False)
    with pytest.raises(BlockingIOError):
        sockfd.recv_fds(right.fileno(), 1, 1)
    with fails_on_fd(errno.EBADF, "send_fds", left.fileno()):
        sockfd.send_fds(left.fileno(), b"x", (-1,))
    with fails_on_fd(errno.ENOTSOCK, "recv_fds", pipe[0]):
        sockfd.recv_fds(pipe[0], 1, 1)
    right.close()
    with fails_on_fd(errno.EPIPE, "send_fds", left.fileno()):  # and no SIGPIPE
        sockfd.send_fds(left.fileno(), b"x", ())


def test_limits_are_checked_before_anything_is_sent(pair: Pair) -> None:
    left, right = pair
    for data, fds in ((b"", ()), (b"x" * 65537, ()), (b"x", (0,) * 5)):
        with pytest.raises(ValueError, match="send_fds"):
            sockfd.send_fds(left.fileno(), data, fds)
    for max_bytes, max_fds in ((0, 1), (65537, 1), (1, -1), (1, 254)):
        with pytest.raises(ValueError, match="recv_fds"):
            sockfd.recv_fds(right.fileno(), max_bytes, max_fds)
    right.setblocking(False)
    with pytest.raises(BlockingIOError):
        right.recv(1)


def test_peer_credentials(pair: Pair) -> None:
    left, _ = pair
    assert sockfd.peer_credentials(left.fileno()) == (os.getpid(), os.getuid(), os.getgid())


def test_peer_credentials_of_other_sockets_are_refused_not_made_up() -> None:
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as lonely:
        with fails_on_fd(errno.EAFNOSUPPORT, "peer_credentials", tcp.fileno()):
            sockfd.peer_credentials(tcp.fileno())
        with fails_on_fd(errno.ENOTCONN, "peer_credentials", lonely.fileno()):
            sockfd.peer_credentials(lonely.fileno())
    with fails_on_fd(errno.EBADF, "peer_credentials", -1):
        sockfd.peer_credentials(-1)
