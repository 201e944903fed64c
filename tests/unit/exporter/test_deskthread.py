# SPDX-License-Identifier: Apache-2.0
"""The desk on a thread of its own: what stops it does not stop the agent."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fakes.broker import STICK, FakeBroker
from tests.fakes.tcp import TcpPair
from tests.waiting import until
from usbdra._native import sockfd
from usbdra.exporter import deskthread, messages
from usbdra.exporter.broker import Broker, ClaimRef, GrantRequest, Peer
from usbdra.exporter.desk import Desk, DeskLimits
from usbdra.exporter.deskthread import DeskThread
from usbdra.exporter.messages import Kind, Pems
from usbdra.exporter.remote import RemoteBroker
from usbdra.transport import packets
from usbdra.transport.packets import pack_header
from usbdra.transport.sockets import deadline_in
from usbdra.types import ClaimUid, NodeName

ME = os.geteuid()
B = Peer("10.0.0.2", 4242, NodeName("node-b"), True)
CLAIM = GrantRequest(STICK.name or "", ClaimRef("lab", "one", ClaimUid("u-1")))


@pytest.fixture
def link() -> Iterator[TcpPair]:
    with TcpPair() as pair:
        yield pair


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.fixture
async def desk(broker: FakeBroker, path: Path) -> AsyncIterator[DeskThread]:
    def make(inner: Broker) -> Desk:
        limits = DeskLimits(idle=0.5, serve=0.2)
        return Desk(inner, path, uid=ME, pems=lambda: Pems("s"), limits=limits)

    async with DeskThread(broker, make) as one:
        yield one


async def test_the_brokers_work_is_done_on_the_agents_loop(
    desk: DeskThread, broker: FakeBroker, path: Path, link: TcpPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    loops = set()
    inventory = FakeBroker.inventory

    async def noted(self: FakeBroker, peer: Peer) -> object:
        loops.add(asyncio.get_running_loop())
        return await inventory(self, peer)

    monkeypatch.setattr(FakeBroker, "inventory", noted)
    remote = RemoteBroker(path, ME, seconds=2)
    assert len(await remote.inventory(B)) == 2
    assert loops == {asyncio.get_running_loop()}
    granted = await remote.acquire(CLAIM, B, link.ours)
    await remote.hand_over(granted, link.ours)
    await remote.abandon(granted)
    assert broker.calls == ["acquire", "hand_over", "abandon"]


async def test_a_grant_that_comes_too_late_goes_back(
    desk: DeskThread, broker: FakeBroker, path: Path, link: TcpPair
) -> None:
    """The desk gives up at its limit; the broker, for once, does not stop when it is told."""
    acquire = broker.acquire

    async def stubborn(request: GrantRequest, peer: Peer, sock: socket.socket) -> object:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return await acquire(request, peer, sock)

    broker.acquire = stubborn  # type: ignore[assignment,method-assign]
    with pytest.raises(Exception, match=r"not done within 0\.2 s"):
        await RemoteBroker(path, ME, seconds=2).acquire(CLAIM, B, link.ours)
    await until(lambda: broker.calls == ["acquire", "abandon"])
    assert broker.holders == {}


async def test_a_stop_gives_back_what_was_not_handed_over(
    broker: FakeBroker, path: Path, link: TcpPair
) -> None:
    async with DeskThread(broker, lambda inner: Desk(inner, path, uid=ME, pems=lambda: Pems("s"))):
        remote = RemoteBroker(path, ME, seconds=2)
        await remote.acquire(CLAIM, B, link.ours)
    assert broker.calls == ["acquire", "abandon"]
    remote.close()


async def test_a_socket_that_cannot_be_made_is_told(broker: FakeBroker, tmp_path: Path) -> None:
    path = tmp_path / ("x" * 200)
    thread = DeskThread(broker, lambda inner: Desk(inner, path, uid=ME, pems=lambda: Pems("s")))
    with pytest.raises(OSError, match="path too long"):
        await thread.__aenter__()


@pytest.mark.parametrize("copies", [1, 2])
async def test_a_socket_that_lingers_stops_the_desk_and_not_the_agent(
    desk: DeskThread,
    broker: FakeBroker,
    path: Path,
    link: TcpPair,
    monkeypatch: pytest.MonkeyPatch,
    copies: int,
) -> None:
    """Two descriptors where one is due: the kernel's closes are the last, and wait an hour."""
    monkeypatch.setattr(deskthread, "STOP_SECONDS", 0.1)
    link.ours.setblocking(False)
    link.ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
    with suppress(BlockingIOError):
        while True:
            link.ours.send(bytes(1 << 16))
    body = messages.pack_acquire(GrantRequest("nothing"), B)
    fds = tuple(os.dup(link.ours.fileno()) for _ in range(copies))
    with await packets.connect(path, ME, deadline_in(1)) as sock:
        sockfd.send_fds(sock.fileno(), pack_header(Kind.ACQUIRE, len(body)), fds)
        # Threads, for it may be one of these that is the last.
        closing = [threading.Thread(target=os.close, args=(fd,)) for fd in fds]
        closing.append(threading.Thread(target=link.ours.close))
        for thread in closing:
            thread.start()
        with suppress(OSError):
            sock.send(body)
        for _ in range(50):  # the agent's own loop never waits
            started = asyncio.get_running_loop().time()
            await asyncio.sleep(0.001)
            assert asyncio.get_running_loop().time() - started < 1
    link.peer.close()
    for thread in closing:
        await asyncio.to_thread(thread.join)
    assert "acquire" not in broker.calls or broker.holders == {}
