# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import errno
import socket
import struct

import pytest

from tests.fakes.links import FakeEnds
from usbdra.errors import KernelUnsupported
from usbdra.transport import watch
from usbdra.transport.watch import LinkWatch, NetlinkEnds, endpoints_of, parse
from usbdra.types import Endpoints

LINK = Endpoints("10.0.0.1", 3241, "10.0.0.2", 50000)


def message(family: int, local: str, sport: int, peer: str, dport: int, kind: int = 20) -> bytes:
    source, destination = (socket.inet_pton(family, a).ljust(16, b"\0") for a in (local, peer))
    body = struct.pack("!BBBBHH", family, 7, 0, 0, sport, dport) + source + destination
    return struct.pack("=IHHII", 88, kind, 0, 0, 0) + body + bytes(32)


def test_ends_of_both_families_are_read() -> None:
    four = message(socket.AF_INET, "10.0.0.1", 3241, "10.0.0.2", 50000)
    assert parse(four) == LINK
    six = message(socket.AF_INET6, "fd00::1", 3241, "fd00::2", 50000)
    assert parse(six) == Endpoints("fd00::1", 3241, "fd00::2", 50000)


def test_an_ipv4_link_on_an_ipv6_socket_has_the_ipv4_name() -> None:
    mapped = message(socket.AF_INET6, "::ffff:10.0.0.1", 3241, "::ffff:10.0.0.2", 50000)
    assert parse(mapped) == LINK


@pytest.mark.parametrize(
    "data",
    [
        b"",
        message(socket.AF_INET, "10.0.0.1", 1, "10.0.0.2", 2)[:55],
        message(socket.AF_INET, "10.0.0.1", 1, "10.0.0.2", 2, kind=3),
        message(socket.AF_INET, "10.0.0.1", 1, "10.0.0.2", 2).replace(b"\x02\x07", b"\x01\x07"),
    ],
    ids=["empty", "short", "another kind", "another family"],
)
def test_what_is_no_news_of_a_tcp_link_is_passed_over(data: bytes) -> None:
    assert parse(data) is None


def test_the_message_is_read_as_pyroute2_reads_it() -> None:
    from pyroute2.netlink.diag import inet_diag_msg

    data = message(socket.AF_INET, "10.0.0.1", 3241, "10.0.0.2", 50000)
    decoded = inet_diag_msg(data)
    decoded.decode()
    ends = parse(data)
    assert ends is not None
    assert (ends.local_port, ends.peer_port) == (decoded["idiag_sport"], decoded["idiag_dport"])
    assert (ends.local, ends.peer) == (decoded["idiag_src"], decoded["idiag_dst"])


async def test_every_listener_is_told_of_every_end_and_of_losses() -> None:
    source, one, other = FakeEnds(), list[Endpoints | None](), list[Endpoints | None]()
    links = LinkWatch(source)
    links.listen(one.append)
    links.listen(other.append)
    links.start()
    links.start()
    source.end(LINK)
    source.overrun()
    async with asyncio.timeout(2):
        while len(other) < 2:
            await asyncio.sleep(0)
    links.close()
    links.close()
    assert one == other == [LINK, None]
    assert source.closed


async def test_a_source_that_breaks_means_look_at_all() -> None:
    source, told = FakeEnds(), asyncio.Queue[Endpoints | None]()
    source.error = OSError(errno.EBADF, "broken")
    links = LinkWatch(source)
    links.listen(told.put_nowait)
    links.start()
    source.end(LINK)
    async with asyncio.timeout(2):
        assert await told.get() is None
    assert source.closed


def test_a_kernel_without_tcp_diagnosis_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = struct.pack("=IHHIIi", 20, 2, 0, 1, 0, -errno.ENOENT)
    ours, kernel = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    kernel.send(answer)
    with kernel, monkeypatch.context() as patch:
        patch.setattr(watch, "_open", lambda groups: ours)
        with pytest.raises(KernelUnsupported, match="load tcp_diag"):
            watch.require_diag()


async def test_the_real_kernel_tells_of_a_link_whose_sockets_are_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        source, told = NetlinkEnds(port), asyncio.Queue[Endpoints | None]()
        links = LinkWatch(source)
        links.listen(told.put_nowait)
        links.start()
        stranger = socket.create_server(("127.0.0.1", 0))
        with socket.create_connection(stranger.getsockname()):
            stranger.accept()[0].close()  # on another port: does not wake us
        stranger.close()
        ours = socket.create_connection(("127.0.0.1", port))
        theirs, _ = server.accept()
        link, seen_there = endpoints_of(ours), endpoints_of(theirs)
        ours.close()
        theirs.close()
        async with asyncio.timeout(2):
            found = {await told.get(), await told.get()}
        links.close()
    assert found == {link, seen_there}
    assert (link.local_port, link.peer_port) == (seen_there.peer_port, seen_there.local_port)
