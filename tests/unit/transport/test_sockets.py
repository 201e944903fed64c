# SPDX-License-Identifier: Apache-2.0
"""Connect, options, exact reads and whole writes on loopback sockets."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from usbdra.errors import LinkError, NotAuthenticated, PeerClosed, PeerTimeout, Unreachable
from usbdra.transport import sockets
from usbdra.transport.sockets import LinkTimeouts

SECOND = 1.0


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, two = socket.socketpair()
    one.setblocking(False)
    two.setblocking(False)
    with one, two:
        yield one, two


def option(sock: socket.socket, name: int) -> int:
    return sock.getsockopt(socket.IPPROTO_TCP, name)


async def test_r23_options_of_a_dialled_socket() -> None:
    """A dead peer is known within 15 s, idle or not."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sock = await sockets.connect("127.0.0.1", listener.getsockname()[1], LinkTimeouts())
        with sock:
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert option(sock, socket.TCP_NODELAY) == 1
            idle, interval, count = (
                option(sock, name)
                for name in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            )
            assert idle + interval * count <= 15
            assert option(sock, socket.TCP_USER_TIMEOUT) == 12000
            assert not sock.get_inheritable()
    assert LinkTimeouts().dead_after <= 15


@pytest.mark.parametrize("known", [True, False], ids=["6.15", "6.12"])
def test_what_was_lost_is_sent_again_each_second_where_the_kernel_can(known: bool) -> None:
    class Kernel(socket.socket):
        def setsockopt(self, *words: Any) -> None:
            if words[:2] == (socket.IPPROTO_TCP, sockets.TCP_RTO_MAX_MS):
                asked.append(words[2])
                if not known:
                    raise OSError(errno.ENOPROTOOPT, "Protocol not available")
            else:
                super().setsockopt(*words)

    asked: list[int] = []
    with Kernel() as sock:
        sockets.tune(sock, LinkTimeouts())
        assert option(sock, socket.TCP_USER_TIMEOUT) == 12000
    assert asked == [1000]


async def test_host_name_and_next_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first address refuses, the second answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        async def resolve(*_: object, **__: object) -> list[object]:
            return [
                (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))
                for host in ("127.0.0.9", "127.0.0.1")
            ]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
        sock = await sockets.connect("exporter.test", port, LinkTimeouts())
        with sock:
            assert sock.getpeername() == ("127.0.0.1", port)


async def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(Unreachable, match=f"127.0.0.1 port {port}: .*Connection refused"):
            await sockets.connect("127.0.0.1", port, LinkTimeouts())


async def test_no_answer_in_time() -> None:
    """A full backlog drops the SYN."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        with pytest.raises(Unreachable, match=r"no answer within 0\.1 s"):
            await sockets.connect("127.0.0.1", port, LinkTimeouts(connect=0.1))
        for filler in fillers:
            filler.close()


@pytest.mark.parametrize("host", ["a..b", "x" * 70 + ".test"])
async def test_name_that_cannot_resolve(host: str) -> None:
    with pytest.raises(Unreachable, match="cannot resolve"):
        await sockets.connect(host, 1, LinkTimeouts())


async def test_read_exactly_leaves_the_rest(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[0].send(b"12345678rest")
    assert await sockets.read_exactly(pair[1], 8, sockets.deadline_in(SECOND), "it") == b"12345678"
    assert pair[1].recv(100) == b"rest"


async def test_r09_three_bytes_then_end(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[0].send(b"123")
    pair[0].close()
    with pytest.raises(PeerClosed, match="after 3 of 8 bytes of the answer") as caught:
        await sockets.read_exactly(pair[1], 8, sockets.deadline_in(SECOND), "the answer")
    assert (caught.value.received, caught.value.wanted) == (3, 8)


async def test_r09_silence(pair: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(PeerTimeout, match="sent 0 of 8 bytes of the answer in time"):
        await sockets.read_exactly(pair[1], 8, sockets.deadline_in(0.02), "the answer")


async def test_reader_that_never_reads(pair: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(PeerTimeout, match="took no reply in time"):
        await sockets.write_all(pair[0], bytes(1 << 24), sockets.deadline_in(0.05), "reply")


async def test_write_to_a_closed_peer(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[1].close()
    with pytest.raises(LinkError, match="broke while sending reply: Broken pipe"):
        await sockets.write_all(pair[0], b"x", sockets.deadline_in(SECOND), "reply")


@pytest.mark.parametrize(
    ("record", "error", "text"),
    [
        ((21, b"\x02\x2a"), NotAuthenticated, "did not accept our certificate: bad certificate"),
        ((21, b"\x02\x30"), NotAuthenticated, "unknown certificate authority"),
        ((21, b"\x02\x74"), NotAuthenticated, "certificate required"),
        ((21, b"\x01\x00"), PeerClosed, "closed the TLS link in place of the answer"),
        ((21, b"\x02\x14"), LinkError, "alert 20"),
        ((22, b"\x04"), LinkError, "type 22.*tickets and key updates"),
        ((21, b"\x02"), LinkError, "type 21"),
        ((0, b""), LinkError, "not data"),
    ],
)
def test_r27_control_records(record: tuple[int, bytes], error: type, text: str) -> None:
    caught = sockets.control_record_error(*record, "the answer")
    assert type(caught) is error
    with pytest.raises(error, match=text):
        raise caught


class KernelTlsSocket(socket.socket):
    """What a kernel TLS socket does when a record that is no data comes first."""

    failure = errno.EIO
    ancillary: tuple[tuple[int, int, bytes], ...] = ((282, 2, b"\x15"),)

    def recv_into(self, *_: object, **__: object) -> int:
        raise OSError(self.failure, "Input/output error")

    def recvmsg(self, *_: object, **__: object) -> tuple[bytes, object, int, object]:  # type: ignore[override]
        return b"\x02\x2d", self.ancillary, 0, None


async def test_r27_alert_is_read_from_the_kernel() -> None:
    with KernelTlsSocket() as sock:
        sock.setblocking(False)
        deadline = sockets.deadline_in(SECOND)
        with pytest.raises(NotAuthenticated, match="certificate expired"):
            await sockets.read_exactly(sock, 8, deadline, "the answer")
        sock.ancillary = ()
        with pytest.raises(LinkError, match="not data"):
            await sockets.read_exactly(sock, 8, deadline, "the answer")
        sock.failure = errno.EBADMSG
        with pytest.raises(LinkError, match="does not decrypt"):
            await sockets.read_exactly(sock, 8, deadline, "the answer")
