# SPDX-License-Identifier: Apache-2.0
"""An exporter that is somebody else's by now: at worst it refuses its own peers."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import socket
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fakes.broker import STICK, FakeBroker
from tests.fakes.tcp import TcpPair
from tests.unit.exporter.test_evidence import Ciphers, evidence
from tests.waiting import until
from usbdra._native import sockfd
from usbdra.errors import LinkError
from usbdra.exporter import messages
from usbdra.exporter.broker import ClaimRef, GrantRequest, Peer
from usbdra.exporter.desk import Desk, DeskLimits
from usbdra.exporter.guard import GuardedBroker
from usbdra.exporter.messages import Kind, Pems
from usbdra.exporter.rate import Bucket
from usbdra.exporter.remote import RemoteBroker
from usbdra.transport import packets
from usbdra.transport.packets import Packet, pack_header
from usbdra.transport.sockets import deadline_in
from usbdra.types import ClaimUid, NodeName

ME = os.geteuid()
B = Peer("127.0.0.1", 4242, NodeName("node-b"), True)
CLAIM = GrantRequest(STICK.name or "", ClaimRef("lab", "one", ClaimUid("u-1")))
LIMITS = DeskLimits(idle=0.2, serve=0.5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.fixture
async def desk(broker: FakeBroker, path: Path) -> AsyncIterator[Desk]:
    guarded = GuardedBroker(broker, vouch=evidence(kernel=Ciphers(52, 52)))
    async with Desk(guarded, path, uid=ME, pems=lambda: Pems("s"), limits=LIMITS) as one:
        yield one


@pytest.fixture
def link() -> Iterator[TcpPair]:
    with TcpPair() as pair:
        yield pair


async def reply_to(path: Path, kind: int, body: bytes, fd: int | None = None) -> Packet | None:
    """What a raw message gets; None when the agent hangs up."""
    with await packets.connect(path, ME, deadline_in(1)) as sock:
        with suppress(LinkError):
            await packets.send(sock, kind, body, deadline_in(1), fd)
        try:
            return await packets.receive(sock, messages.MAX_REPLY, deadline_in(2))
        except LinkError:
            return None


async def still_serves(path: Path) -> bool:
    remote = RemoteBroker(path, ME, seconds=2)
    return len(await remote.inventory(B)) == 2


async def test_another_user_is_not_spoken_to(
    desk: Desk, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    desk._uid = ME + 1
    assert await reply_to(path, Kind.IDENTITY, messages.pack_have("")) is None
    assert f"of user {ME} is not user {ME + 1}" in caplog.text


async def test_an_agent_of_another_user_is_not_spoken_to(
    desk: Desk, path: Path, broker: FakeBroker, link: TcpPair
) -> None:
    """Whoever put his own socket there gets neither a connection of ours nor a request."""
    impostor = RemoteBroker(path, ME + 1, seconds=2)
    with pytest.raises(Exception, match=f"is not user {ME + 1}"):
        await impostor.acquire(CLAIM, B, link.ours)
    assert broker.calls == []


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"\0" * 64,
        b"\xff" * 4096,
        pack_header(Kind.ACQUIRE, 0xFFFFFFFF),
        pack_header(Kind.IDENTITY, messages.MAX_REQUEST + 1) + b"x" * 9000,
        pack_header(Kind.GRANTED, 2) + b"{}",  # a reply
        pack_header(Kind.REFUSED, 2) + b"{}",
        pack_header(99, 2) + b"{}",
        pack_header(Kind.ACQUIRE, 2) + b"{}",  # without its descriptor
        pack_header(Kind.INVENTORY, 2) + b"{}",
        pack_header(Kind.IDENTITY, 4) + b"\xff\xfe\x00{",
        pack_header(Kind.HAND_OVER, 9000) + b"[" * 9000,
    ],
)
async def test_garbage_ends_its_connection_and_nothing_else(
    desk: Desk, path: Path, broker: FakeBroker, garbage: bytes
) -> None:
    loop = asyncio.get_running_loop()
    with await packets.connect(path, ME, deadline_in(1)) as sock:
        await loop.sock_sendall(sock, garbage)
        with suppress(ConnectionResetError):
            assert await asyncio.wait_for(loop.sock_recv(sock, 1), 2) == b""
    assert broker.calls == []
    assert await still_serves(path)


@pytest.mark.parametrize("kind", [Kind.IDENTITY, Kind.INVENTORY, Kind.HAND_OVER, Kind.ABANDON])
async def test_a_descriptor_where_none_is_due_is_closed(desk: Desk, path: Path, kind: Kind) -> None:
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    assert await reply_to(path, kind, messages.pack_have(""), writing) is None
    os.close(writing)
    assert os.read(reading, 1) == b""
    os.close(reading)


async def test_more_descriptors_than_one_are_closed(
    desk: Desk, path: Path, broker: FakeBroker, link: TcpPair
) -> None:
    body = messages.pack_acquire(CLAIM, B)
    with await packets.connect(path, ME, deadline_in(1)) as sock:
        fd = link.ours.fileno()
        sockfd.send_fds(sock.fileno(), pack_header(Kind.ACQUIRE, len(body)) + body, (fd, fd))
        with suppress(LinkError):  # a reset, when the body was not read any more
            assert await packets.receive(sock, 100, deadline_in(2)) is None
    link.ours.close()
    assert link.peer_sees_end()
    assert broker.calls == []


def strange_descriptors() -> Iterator[int]:
    yield os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    yield os.memfd_create("x", os.MFD_CLOEXEC)
    yield socket.socket(socket.AF_UNIX).detach()
    yield socket.socket(socket.AF_INET, socket.SOCK_DGRAM).detach()
    yield socket.socket().detach()
    yield socket.create_server(("127.0.0.1", 0)).detach()


async def test_what_is_no_live_tcp_connection_never_reaches_the_devices(
    desk: Desk, path: Path, broker: FakeBroker
) -> None:
    body = messages.pack_acquire(CLAIM, B)
    for fd in strange_descriptors():
        reply = await reply_to(path, Kind.ACQUIRE, body, fd)
        os.close(fd)
        assert reply is not None
        assert messages.parse_refused(reply.body)[1].reason == "Refused"
    assert broker.calls == []


async def test_another_nodes_connection_is_refused(
    desk: Desk, path: Path, broker: FakeBroker, link: TcpPair
) -> None:
    """The name is free to choose for a liar, the address is not."""
    told = Peer("127.0.0.3", 4242, NodeName("node-c"), True)
    body = messages.pack_acquire(CLAIM, told)
    reply = await reply_to(path, Kind.ACQUIRE, body, link.ours.fileno())
    assert reply is not None
    assert reply.kind == Kind.REFUSED
    refusal = messages.parse_refused(reply.body)[1]
    assert refusal.message.startswith("127.0.0.1 is no InternalIP of node node-c")
    assert broker.calls == []


async def test_a_session_of_another_connection_is_not_handed_over(
    desk: Desk, path: Path, broker: FakeBroker, link: TcpPair
) -> None:
    remote = RemoteBroker(path, ME, seconds=2)
    granted = await remote.acquire(CLAIM, B, link.ours)
    for session in (granted.session, "nobodys"):
        reply = await reply_to(path, Kind.HAND_OVER, messages.pack_session(session))
        assert reply is not None
        assert messages.parse_refused(reply.body)[1].reason == "ExportFailed"
    assert broker.calls == ["acquire"]
    await remote.hand_over(granted, link.ours)


async def test_one_device_a_connection(
    desk: Desk, path: Path, broker: FakeBroker, link: TcpPair
) -> None:
    body = messages.pack_acquire(CLAIM, B)
    with await packets.connect(path, ME, deadline_in(1)) as sock:
        kinds = []
        for _ in range(2):
            await packets.send(sock, Kind.ACQUIRE, body, deadline_in(1), link.ours.fileno())
            reply = await packets.receive(sock, messages.MAX_REPLY, deadline_in(1))
            assert reply is not None
            kinds.append(reply.kind)
    assert kinds == [Kind.GRANTED, Kind.REFUSED]
    assert broker.calls[:1] == ["acquire"]


async def test_too_many_requests_are_refused_before_any_work(
    broker: FakeBroker, path: Path, link: TcpPair
) -> None:
    limits = DeskLimits(per_second=0.001, burst=3, requests=2)
    async with Desk(broker, path, uid=ME, pems=lambda: Pems("s"), limits=limits):
        body = messages.pack_acquire(CLAIM, B)
        reasons = []
        for _ in range(6):
            reply = await reply_to(path, Kind.ACQUIRE, body, link.ours.fileno())
            assert reply is not None
            refused = reply.kind == Kind.REFUSED
            reasons.append(messages.parse_refused(reply.body)[1].reason if refused else "")
        assert reasons == ["", "", "", "Busy", "Busy", "Busy"]
        assert await still_serves(path)  # who wants something else is not told off for it
        assert broker.calls.count("acquire") == 3


async def test_too_many_connections_and_silence(
    broker: FakeBroker, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limits = DeskLimits(connections=4, idle=0.3)
    async with Desk(broker, path, uid=ME, pems=lambda: Pems("s"), limits=limits) as desk:
        silent = [await packets.connect(path, ME, deadline_in(1)) for _ in range(4)]
        await until(lambda: len(desk._tasks) >= 4)
        assert await reply_to(path, Kind.IDENTITY, messages.pack_have("")) is None
        while desk._tasks:  # each is given up after its time
            await asyncio.sleep(0.01)
        assert await still_serves(path)
        for sock in silent:
            sock.close()


async def test_a_flood_costs_the_agent_no_memory(
    desk: Desk, path: Path, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "usbdra")
    caplog.handler.setLevel(logging.CRITICAL)
    nasty = json.dumps({"v": 1, "peer": {"node": "n" * 8000}}).encode()
    tracemalloc.start()
    try:
        before = 0
        for number in range(300):
            with suppress(LinkError), await packets.connect(path, ME, deadline_in(1)) as sock:
                await packets.send(sock, Kind.INVENTORY, nasty, deadline_in(1))
                await packets.receive(sock, 9000, deadline_in(1))
            if number == 50:
                before = tracemalloc.get_traced_memory()[0]
        assert tracemalloc.get_traced_memory()[0] - before < 200_000
    finally:
        tracemalloc.stop()
    assert broker.calls == []


async def test_mutated_conversations_leave_the_desk_whole(
    desk: Desk, path: Path, broker: FakeBroker, link: TcpPair, caplog: pytest.LogCaptureFixture
) -> None:
    """Right messages with bytes turned or cut, in any order, with a socket, with two, with none."""
    caplog.set_level(logging.CRITICAL, "usbdra")
    desk._buckets = {kind: Bucket(1e9, 1_000_000) for kind in desk._buckets}
    chance = random.Random(7)
    good = [
        (Kind.INVENTORY, messages.pack_inventory(B)),
        (Kind.ACQUIRE, messages.pack_acquire(CLAIM, B)),
        (Kind.HAND_OVER, messages.pack_session("s1")),
        (Kind.ABANDON, messages.pack_session("s1")),
        (Kind.IDENTITY, messages.pack_have("")),
    ]

    def mutated() -> bytes:
        kind, body = chance.choice(good)
        data = bytearray(pack_header(kind, len(body)) + body)
        for _ in range(chance.choice((0, 0, 1, 3))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        return bytes(
            data[: chance.choice((len(data), len(data), chance.randrange(len(data)))) or 1]
        )

    replies = Counter[int]()
    for _ in range(150):
        with await packets.connect(path, ME, deadline_in(1)) as sock:
            for _ in range(chance.randrange(1, 4)):
                fds = (link.ours.fileno(),) * chance.choice((0, 1, 1, 2))
                with suppress(OSError):
                    sockfd.send_fds(sock.fileno(), mutated(), fds)
            sock.shutdown(socket.SHUT_WR)
            with suppress(LinkError):
                reply = await packets.receive(sock, messages.MAX_REPLY, deadline_in(1))
                replies[reply.kind if reply else 0] += 1
    assert {0, Kind.GRANTED, Kind.REFUSED, Kind.DEVICES, Kind.PEMS} <= replies.keys(), replies
    await until(lambda: not desk._tasks and not broker.holders)
    assert await still_serves(path)
