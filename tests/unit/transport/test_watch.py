# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import errno
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.fakes.links import FakeEnds
from tests.waiting import patience
from usbdra.errors import KernelUnsupported
from usbdra.transport import watch
from usbdra.transport.watch import EndSource, LinkWatch, NetlinkEnds, endpoints_of, parse
from usbdra.types import Endpoints

News = asyncio.Queue[Endpoints | None]
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
        message(socket.AF_INET, "0.0.0.0", 3241, "0.0.0.0", 0),
    ],
    ids=["empty", "short", "another kind", "another family", "a listener"],
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


@asynccontextmanager
async def watching(source: Callable[[], EndSource], retry: float = 30.0) -> AsyncIterator[News]:
    news = News()
    links = LinkWatch(source, retry=retry)
    links.listen(news.put_nowait)
    task = asyncio.create_task(links.run())
    try:
        async with patience():
            assert await news.get() is None  # what ended before is looked for
            yield news
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_every_listener_is_told_of_every_end_and_of_losses() -> None:
    source, other = FakeEnds(), News()
    links = LinkWatch(lambda: source)
    links.listen(other.put_nowait)
    task = asyncio.create_task(links.run())
    async with watching(FakeEnds) as unrelated, patience():
        source.end(LINK)
        source.overrun()
        assert [await other.get() for _ in range(3)] == [None, LINK, None]
        assert unrelated.empty()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert source.closed


async def test_a_source_that_breaks_is_opened_again_and_all_is_looked_at() -> None:
    broken, whole = FakeEnds(), FakeEnds()
    broken.error = OSError(errno.EBADF, "broken")
    sources = iter([broken, whole])
    async with watching(lambda: next(sources), retry=0.01) as news:
        broken.end(LINK)
        assert await news.get() is None
        assert await news.get() is None
        assert broken.closed
        whole.end(LINK)
        assert await news.get() == LINK
    assert whole.closed


async def test_without_messages_all_is_looked_at_now_and_then() -> None:
    tries = 0

    def refused() -> EndSource:
        nonlocal tries
        tries += 1
        raise KernelUnsupported("load tcp_diag")

    async with watching(refused, retry=0.001) as news:
        assert [await news.get() for _ in range(3)] == [None] * 3
    assert tries >= 3


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
        async with watching(lambda: NetlinkEnds(port)) as news:
            with (
                socket.create_server(("127.0.0.1", 0)) as stranger,
                socket.create_connection(stranger.getsockname()),
            ):
                stranger.accept()[0].close()  # on another port: does not wake us
            ours = socket.create_connection(("127.0.0.1", port))
            theirs, _ = server.accept()
            link, seen_there = endpoints_of(ours), endpoints_of(theirs)
            ours.close()
            theirs.close()
            found = {await news.get(), await news.get()}
    assert found == {link, seen_there}
    assert (link.local_port, link.peer_port) == (seen_there.peer_port, seen_there.local_port)
