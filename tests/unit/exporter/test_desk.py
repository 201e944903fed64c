# SPDX-License-Identifier: Apache-2.0
"""A broker behind the Unix socket is as good as the broker; a death in between costs nothing."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.fakes.broker import KEYBOARD, STICK, FakeBroker
from tests.fakes.tcp import TcpPair
from tests.waiting import until
from usbdra.errors import ConfigError, DeviceBusy, ExportFailed, HostInUse, NotFound, UsbdraError
from usbdra.exporter.broker import Broker, ClaimRef, Granted, GrantRequest, Peer
from usbdra.exporter.desk import Desk, DeskLimits
from usbdra.exporter.messages import Pems
from usbdra.exporter.refusals import RefusedByAgent, refusal_of
from usbdra.exporter.remote import RemoteBroker
from usbdra.types import ClaimUid, NodeName
from usbdra.usbip.wire import Status

ME = os.geteuid()
B = Peer("10.0.0.2", 4242, NodeName("node-b"), True)
CLAIM = GrantRequest(STICK.name or "", ClaimRef("lab", "one", ClaimUid("u-1")))
PEMS = Pems("s1", "CERT", "KEY", "CA")


@pytest.fixture
def link() -> Iterator[TcpPair]:
    with TcpPair() as pair:
        yield pair


@pytest.fixture
async def desk(broker: FakeBroker, tmp_path: Path) -> AsyncIterator[Desk]:
    limits = DeskLimits(idle=0.5, serve=0.5)
    one = Desk(broker, tmp_path / "s", uid=ME, pems=lambda: PEMS, limits=limits)
    async with one:
        yield one


@pytest.fixture
def remote(desk: Desk, tmp_path: Path) -> Iterator[RemoteBroker]:
    one = RemoteBroker(tmp_path / "s", ME, seconds=2)
    yield one
    one.close()


async def test_remote_broker_is_a_broker(remote: RemoteBroker, broker: FakeBroker) -> None:
    contract: Broker = remote
    assert list(await contract.inventory(B)) == [STICK, KEYBOARD]


async def test_a_grant_and_its_socket(
    remote: RemoteBroker, broker: FakeBroker, link: TcpPair
) -> None:
    granted = await remote.acquire(CLAIM, B, link.ours)
    assert granted == Granted("s1", STICK, (("authorise", 0.001), ("bind", 0.002)))
    assert broker.requests == [(CLAIM, B)]
    await remote.hand_over(granted, link.ours)
    link.ours.close()
    kernel = broker.sessions["s1"]
    link.peer.sendall(b"urb")
    assert await asyncio.get_running_loop().sock_recv(kernel, 9) == b"urb"
    # The agent puts its own limits on a dead peer, whatever the exporter did.
    assert kernel.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 12000
    assert broker.calls == ["acquire", "hand_over"]
    await remote.abandon(granted)  # the reply did not reach the peer
    assert broker.calls == ["acquire", "hand_over", "abandon"]
    await remote.abandon(granted)
    assert broker.calls == ["acquire", "hand_over", "abandon"]


@pytest.mark.parametrize(
    ("error", "status", "reason", "holder"),
    [
        (DeviceBusy("stick", "claim lab/one"), Status.BUSY, "Busy", "claim lab/one"),
        (HostInUse("1-1.4", "mounted at /"), Status.NOT_AVAILABLE, "InUse", ""),
        (NotFound("gone"), Status.NO_DEVICE, "NotFound", ""),
        (ExportFailed("no driver"), Status.DEVICE_ERROR, "ExportFailed", ""),
        (ConfigError("odd"), Status.ERROR, "BadConfig", ""),
        (ZeroDivisionError("bug"), Status.ERROR, "Failed", ""),
    ],
)
async def test_a_refusal_reaches_the_peer_as_the_agent_meant_it(
    remote: RemoteBroker,
    broker: FakeBroker,
    link: TcpPair,
    error: Exception,
    status: Status,
    reason: str,
    holder: str,
) -> None:
    broker.fail_acquire = error
    with pytest.raises(RefusedByAgent) as caught:
        await remote.acquire(CLAIM, B, link.ours)
    told, refusal = refusal_of(caught.value)
    assert (told, refusal.reason, refusal.holder) == (status, reason, holder)
    assert broker.calls == ["acquire"]


async def test_a_failed_hand_over_and_a_slow_bind(
    remote: RemoteBroker, broker: FakeBroker, link: TcpPair
) -> None:
    broker.fail_hand_over = ExportFailed("status stayed 1")
    granted = await remote.acquire(CLAIM, B, link.ours)
    with pytest.raises(RefusedByAgent, match="status stayed 1"):
        await remote.hand_over(granted, link.ours)
    await until(lambda: broker.holders == {})
    broker.delay = 60
    with pytest.raises(RefusedByAgent, match=r"not done within 0\.5 s"):
        await remote.acquire(CLAIM, B, link.ours)
    assert broker.holders == {}


async def test_an_exporter_killed_before_the_hand_over_leaves_nothing_taken(
    remote: RemoteBroker, broker: FakeBroker, link: TcpPair
) -> None:
    await remote.acquire(CLAIM, B, link.ours)
    assert broker.holders != {}
    remote.close()  # all that the kernel does for a killed process
    await until(lambda: broker.holders == {})
    assert broker.calls == ["acquire", "abandon"]
    link.ours.close()
    assert link.peer_sees_end()


async def test_an_exporter_killed_while_the_device_is_bound(
    remote: RemoteBroker, broker: FakeBroker, link: TcpPair
) -> None:
    broker.delay = 0.1
    asking = asyncio.create_task(remote.acquire(CLAIM, B, link.ours))
    await until(lambda: broker.calls == ["acquire"])
    asking.cancel()
    await until(lambda: broker.calls == ["acquire", "abandon"])
    assert broker.holders == {}


async def test_an_exporter_killed_after_the_hand_over_leaves_the_link_running(
    remote: RemoteBroker, broker: FakeBroker, link: TcpPair
) -> None:
    granted = await remote.acquire(CLAIM, B, link.ours)
    await remote.hand_over(granted, link.ours)
    remote.close()
    link.ours.close()
    link.peer.sendall(b"still here")
    kernel = broker.sessions["s1"]
    assert await asyncio.get_running_loop().sock_recv(kernel, 99) == b"still here"
    assert broker.calls == ["acquire", "hand_over"]


async def test_a_grant_that_nobody_collects_goes_back(
    remote: RemoteBroker, broker: FakeBroker, link: TcpPair
) -> None:
    granted = await remote.acquire(CLAIM, B, link.ours)
    await until(lambda: broker.calls == ["acquire", "abandon"])
    with pytest.raises(ExportFailed, match="ask again"):
        await remote.hand_over(granted, link.ours)


async def test_an_agent_that_stops_gives_back_and_is_told_apart_from_a_bad_peer(
    remote: RemoteBroker, broker: FakeBroker, link: TcpPair, desk: Desk
) -> None:
    granted = await remote.acquire(CLAIM, B, link.ours)
    await desk.close()
    assert broker.calls == ["acquire", "abandon"]
    with pytest.raises(ExportFailed):
        await remote.hand_over(granted, link.ours)
    with pytest.raises(ExportFailed, match=r"agent does not answer \(cannot connect to .*; ask"):
        await remote.inventory(B)
    await remote.abandon(granted)  # never raises


async def test_the_identity_comes_once_and_when_it_changed(remote: RemoteBroker) -> None:
    assert await remote.identity("") == PEMS
    assert await remote.identity("s1") == Pems("s1")


async def test_no_identity_yet_is_a_refusal(broker: FakeBroker, tmp_path: Path) -> None:
    def missing() -> Pems:
        raise ConfigError("cannot use tls.crt: No such file or directory")

    async with Desk(broker, tmp_path / "d" / "s", uid=ME, pems=missing):
        one = RemoteBroker(tmp_path / "d" / "s", ME)
        with pytest.raises(UsbdraError, match=r"cannot use tls\.crt"):
            await one.identity("")
