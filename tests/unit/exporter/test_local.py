# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.kernel import FakeKernel
from tests.fakes.kernel_stub import AVAILABLE, USED
from tests.fakes.sysfs import FakeDevice
from tests.fakes.tcp import TcpPair
from tests.waiting import until
from usbdra.discovery.inventory import scan
from usbdra.errors import DeviceBusy, ExportFailed, IdentityChanged, NotFound, Refused
from usbdra.exporter.bind import Binder
from usbdra.exporter.broker import Broker, ClaimRef, GrantRequest, Peer
from usbdra.exporter.lease import Authorise, HeldHere, Outlived
from usbdra.exporter.local import LocalBroker
from usbdra.exporter.stubhost import BindLimits, StubHost
from usbdra.state.exports import Session
from usbdra.transport.watch import endpoints_of
from usbdra.types import BusId, ClaimUid, DeviceName, NodeName, Offer

BUSID = BusId("1-1.3")
NAME = "usb-0781-5581-a1"
B = Peer("10.0.0.2", 4242, NodeName("node-b"))
C = Peer("10.0.0.3", 4242, NodeName("node-c"))
CLAIM = GrantRequest(NAME, ClaimRef("team", "cam", ClaimUid("u-1")))
OTHER = GrantRequest(NAME, ClaimRef("team", "other", ClaimUid("u-2")))


@pytest.fixture
async def kernel(tmp_path: Path) -> AsyncIterator[FakeKernel]:
    async with FakeKernel(tmp_path) as fake:
        yield fake


@pytest.fixture
def stick(kernel: FakeKernel) -> FakeDevice:
    return kernel.stub.plug(3, serial=b"A1")


@pytest.fixture
def link() -> Iterator[TcpPair]:
    with TcpPair() as pair:
        yield pair


@pytest.fixture
async def broker(kernel: FakeKernel, stick: FakeDevice) -> AsyncIterator[LocalBroker]:
    async with started(kernel) as one:
        yield one


@asynccontextmanager
async def started(
    kernel: FakeKernel,
    authorise: Authorise | None = None,
    outlived: Outlived | None = None,
    held_here: HeldHere | None = None,
) -> AsyncIterator[LocalBroker]:
    host = StubHost(
        kernel.root,
        stub=kernel.stub,
        sysfs=kernel.stub,
        limits=BindLimits(status=0.1, driver=0.05),
    )
    binder = Binder(kernel.root, events=kernel.events, in_use=lambda busid: None, host=host)
    one = LocalBroker(
        binder,
        lambda: scan(kernel.root, node="a"),
        authorise=authorise,
        outlived=outlived,
        held_here=held_here,
    )
    await one.start()
    try:
        yield one
    finally:
        await one.stop()


AT_ONCE_S = 2.0
"""Less than usbip-host and the host's driver are waited for (exporter/stubhost.py)."""


def driver_of(device: FakeDevice) -> str | None:
    try:
        return os.readlink(device.path / "driver").rpartition("/")[2]
    except FileNotFoundError:  # the writes under test run in a thread of their own
        return None


async def driven_by(device: FakeDevice, driver: str) -> None:
    await until(
        lambda: driver_of(device) == driver and (driver != "usb" or device.interface().exists()),
        within=AT_ONCE_S,
    )


def no_records(kernel: FakeKernel) -> bool:
    return list((kernel.root / "run/usbdra/exports").glob("*.json")) == []


async def test_local_broker_is_a_broker(broker: LocalBroker) -> None:
    contract: Broker = broker
    (device,) = await contract.inventory(B)
    assert (device.name, device.busid, device.available) == (NAME, BUSID, True)
    assert (device.vendor_id, device.product_id, device.serial) == ("0781", "5581", "A1")
    assert device.interfaces == ((8, 6, 80),)
    assert device.speed_code == 3


async def test_a_session_from_grant_to_the_peers_end(
    kernel: FakeKernel, stick: FakeDevice, broker: LocalBroker, link: TcpPair
) -> None:
    granted = await broker.acquire(CLAIM, B)
    assert granted.device.name == NAME
    assert [phase for phase, _ in granted.timings] == ["authorise", "bind"]
    assert kernel.stub.state(stick) == AVAILABLE
    await broker.hand_over(granted, link.ours)
    link.ours.close()
    assert kernel.stub.state(stick) == USED
    (device,) = await broker.inventory(C)
    assert not device.available
    assert device.reason == "in use by claim team/cam of node-b at 10.0.0.2:4242"
    link.peer.close()  # the importer detaches, or is gone
    await driven_by(stick, "usb")
    await until(lambda: not broker._leases, within=AT_ONCE_S)
    assert kernel.sockets == 0
    assert no_records(kernel)
    (device,) = await broker.inventory(C)
    assert device.available


async def test_r30_second_client_is_refused_at_once_with_the_claim(
    broker: LocalBroker, link: TcpPair
) -> None:
    granted = await broker.acquire(CLAIM, B)
    with pytest.raises(DeviceBusy, match="claim team/cam of node-b"):
        await broker.acquire(OTHER, C)
    await broker.hand_over(granted, link.ours)
    with pytest.raises(DeviceBusy, match="claim team/cam of node-b"):
        await broker.acquire(OTHER, C)
    with pytest.raises(DeviceBusy):  # the claim's uid alone is no proof: another node says it
        await broker.acquire(CLAIM, C)


async def test_r30_of_two_at_once_one_gets_the_device(broker: LocalBroker) -> None:
    results = await asyncio.gather(
        broker.acquire(CLAIM, B), broker.acquire(OTHER, C), return_exceptions=True
    )
    assert sorted(type(result).__name__ for result in results) == ["DeviceBusy", "Granted"]


async def test_r12_the_rightful_claim_gets_its_device_again(
    kernel: FakeKernel, stick: FakeDevice, broker: LocalBroker, link: TcpPair
) -> None:
    """Node b lost power: its old session still looks alive here."""
    old = await broker.acquire(CLAIM, B)
    await broker.hand_over(old, link.ours)
    link.ours.close()
    new = await broker.acquire(CLAIM, B)
    assert new.session != old.session
    assert link.peer_sees_end()
    with TcpPair() as second:
        await broker.hand_over(new, second.ours)
        assert kernel.stub.state(stick) == USED
        await broker.abandon(old)  # late, and of no effect
        assert kernel.stub.state(stick) == USED


async def test_r12_a_third_node_is_served_once_the_dead_session_is_dropped(
    kernel: FakeKernel, stick: FakeDevice, broker: LocalBroker, link: TcpPair
) -> None:
    granted = await broker.acquire(CLAIM, B)
    await broker.hand_over(granted, link.ours)
    link.ours.close()
    kernel.stub.peer_gone(stick)  # keep-alive gave up
    await driven_by(stick, "usb")
    again = await broker.acquire(OTHER, C)
    assert kernel.stub.state(stick) == AVAILABLE
    await broker.abandon(again)


async def test_a_request_during_a_release_waits_for_it(
    kernel: FakeKernel, stick: FakeDevice, broker: LocalBroker, link: TcpPair
) -> None:
    granted = await broker.acquire(CLAIM, B)
    await broker.hand_over(granted, link.ours)
    broker.link_ended(endpoints_of(link.ours))
    await asyncio.sleep(0)
    assert kernel.stub.state(stick) == USED
    kernel.stub.peer_gone(stick)
    again = await broker.acquire(OTHER, C)
    assert driver_of(stick) == "usbip-host"
    await broker.abandon(again)


async def test_abandon_before_and_after_the_hand_over(
    kernel: FakeKernel, stick: FakeDevice, broker: LocalBroker, link: TcpPair
) -> None:
    granted = await broker.acquire(CLAIM, B)
    await broker.abandon(granted)
    await broker.abandon(granted)
    assert driver_of(stick) == "usb"
    granted = await broker.acquire(CLAIM, B)
    await broker.hand_over(granted, link.ours)
    link.ours.close()
    await broker.abandon(granted)
    assert driver_of(stick) == "usb"
    assert kernel.sockets == 0
    assert link.peer_sees_end()
    assert no_records(kernel)


async def test_a_node_that_left_the_cluster_loses_its_sessions_and_no_other(
    kernel: FakeKernel, stick: FakeDevice, broker: LocalBroker, link: TcpPair
) -> None:
    await broker.hand_over(await broker.acquire(CLAIM, B), link.ours)
    link.ours.close()
    await broker.end_sessions_of(NodeName("node-c"))
    assert driver_of(stick) == "usbip-host"
    await broker.end_sessions_of(NodeName("node-b"))
    assert driver_of(stick) == "usb"
    assert link.peer_sees_end()
    assert no_records(kernel)


async def test_a_session_is_told_while_it_runs_and_ended_by_its_key(
    kernel: FakeKernel, stick: FakeDevice, broker: LocalBroker, link: TcpPair
) -> None:
    granted = await broker.acquire(CLAIM, B)
    assert broker.sessions() == [], "nobody has the device yet"
    await broker.hand_over(granted, link.ours)
    link.ours.close()
    ((name, session),) = broker.sessions()
    assert (name, session.key, session.node) == (granted.device.name, granted.session, B.node)
    await broker.end("another")
    assert driver_of(stick) == "usbip-host"
    await broker.end(session.key)
    assert driver_of(stick) == "usb"
    assert (link.peer_sees_end(), broker.sessions()) == (True, [])


async def test_hand_over_that_fails_gives_the_device_back(
    kernel: FakeKernel, stick: FakeDevice, broker: LocalBroker, link: TcpPair
) -> None:
    granted = await broker.acquire(CLAIM, B)
    kernel.stub.force_status(stick, 3)
    with pytest.raises(ExportFailed):
        await broker.hand_over(granted, link.ours)
    assert driver_of(stick) == "usb"
    assert no_records(kernel)
    with pytest.raises(ExportFailed, match="is over"):
        await broker.hand_over(granted, link.ours)


async def test_pinned_devices_stay_bound_between_sessions(
    kernel: FakeKernel, stick: FakeDevice, broker: LocalBroker, link: TcpPair
) -> None:
    await broker._binder.bind(BUSID, pinned=True)
    granted = await broker.acquire(CLAIM, B)
    await broker.hand_over(granted, link.ours)
    link.ours.close()
    link.peer.close()
    await until(
        lambda: kernel.stub.state(stick) == AVAILABLE and not broker._leases, within=AT_ONCE_S
    )
    assert driver_of(stick) == "usbip-host"
    (device,) = await broker.inventory(C)
    assert device.available


async def test_unplugged_while_exported(
    kernel: FakeKernel, stick: FakeDevice, broker: LocalBroker, link: TcpPair
) -> None:
    granted = await broker.acquire(CLAIM, B)
    await broker.hand_over(granted, link.ours)
    link.ours.close()
    kernel.stub.unplug(stick)
    assert link.peer_sees_end()
    await until(lambda: not broker._leases, within=AT_ONCE_S)
    assert list(await broker.inventory(B)) == []
    assert no_records(kernel)
    back = kernel.stub.plug(3, serial=b"A1")
    granted = await broker.acquire(CLAIM, B)
    await broker.abandon(granted)
    assert driver_of(back) == "usb"


async def test_r15_not_free_before_its_driver_is_back(
    kernel: FakeKernel, stick: FakeDevice, broker: LocalBroker
) -> None:
    granted = await broker.acquire(CLAIM, B)
    kernel.stub.lost_drivers = {"usb-storage"}
    await broker.abandon(granted)
    (device,) = await broker.inventory(B)
    assert not device.available
    assert "has no driver again" in device.reason
    kernel.stub.lost_drivers = set()
    granted = await broker.acquire(CLAIM, B)
    await broker.abandon(granted)
    (device,) = await broker.inventory(B)
    assert device.available


async def test_policy_and_authorisation_come_before_the_bind(
    kernel: FakeKernel, stick: FakeDevice
) -> None:
    slow = kernel.stub.plug(4, serial=b"S1", speed="12")

    async def nobody(offer: Offer, request: GrantRequest, peer: Peer) -> None:
        raise Refused(f"{peer.node} has no claim for {offer.name}")

    async with started(kernel, nobody) as broker:
        with pytest.raises(Refused, match="node-b has no claim"):
            await broker.acquire(CLAIM, B)
        with pytest.raises(Refused, match="is not offered"):
            await broker.acquire(GrantRequest(slow.busid), B)
        with pytest.raises(NotFound):
            await broker.acquire(GrantRequest("usb-ffff-ffff-x"), B)
        assert [device.busid for device in await broker.inventory(B)] == [BUSID]
    assert driver_of(stick) == "usb"
    assert kernel.stub.entries == {}


async def test_running_sessions_outlive_the_exporter(
    kernel: FakeKernel, stick: FakeDevice, link: TcpPair
) -> None:
    async with started(kernel) as broker:
        granted = await broker.acquire(CLAIM, B)
        await broker.hand_over(granted, link.ours)
        link.ours.close()
    assert kernel.stub.state(stick) == USED
    async with started(kernel) as broker:
        (device,) = await broker.inventory(C)
        assert device.reason.startswith("in use by claim team/cam of node-b")
        with pytest.raises(DeviceBusy, match="team/cam"):
            await broker.acquire(OTHER, C)
        kernel.stub.peer_gone(stick)
        await asyncio.sleep(0.005)
        granted = await broker.acquire(OTHER, C)
        await broker.abandon(granted)
    assert driver_of(stick) == "usb"
    assert no_records(kernel)


async def test_a_stop_gives_back_what_was_never_handed_over(
    kernel: FakeKernel, stick: FakeDevice
) -> None:
    async with started(kernel) as broker:
        await broker.acquire(CLAIM, B)
        assert driver_of(stick) == "usbip-host"
    assert driver_of(stick) == "usb"


async def test_the_end_of_a_session_of_an_earlier_run_is_heard_of(
    kernel: FakeKernel, stick: FakeDevice, link: TcpPair
) -> None:
    async with started(kernel) as broker:
        await broker.hand_over(await broker.acquire(CLAIM, B), link.ours)
    ends = endpoints_of(link.ours)
    link.ours.close()
    async with started(kernel) as broker:
        broker.link_ended(replace(ends, peer_port=1))  # another's
        broker.link_ended(None)
        assert broker.holder(BUSID) is not None
        kernel.stub.peer_gone(stick)
        broker.link_ended(ends)
        broker.link_ended(ends)
        await driven_by(stick, "usb")
        await until(lambda: broker.holder(BUSID) is None, within=AT_ONCE_S)
    assert no_records(kernel)


async def test_ends_that_were_lost_are_found_by_a_look(
    kernel: FakeKernel, stick: FakeDevice, link: TcpPair
) -> None:
    async with started(kernel) as broker:
        await broker.hand_over(await broker.acquire(CLAIM, B), link.ours)
    link.ours.close()
    async with started(kernel) as broker:
        kernel.stub.peer_gone(stick)
        await until(lambda: kernel.stub.state(stick) != USED, within=AT_ONCE_S)
        broker.link_ended(None)
        await driven_by(stick, "usb")


async def test_r12_also_a_session_of_an_earlier_run_is_its_claims_own(
    kernel: FakeKernel, stick: FakeDevice, link: TcpPair
) -> None:
    async with started(kernel) as broker:
        await broker.hand_over(await broker.acquire(CLAIM, B), link.ours)
    link.ours.close()
    async with started(kernel) as broker:
        with pytest.raises(DeviceBusy):
            await broker.acquire(CLAIM, C)
        await broker.abandon(await broker.acquire(CLAIM, B))
    assert link.peer_sees_end()
    assert driver_of(stick) == "usb"


async def test_r48_a_session_that_outlived_its_claim_makes_way(
    kernel: FakeKernel, stick: FakeDevice, link: TcpPair
) -> None:
    dead: set[str] = set()

    async def outlived(name: DeviceName, session: Session) -> bool:
        assert (name, session.node, session.claim) == (NAME, "node-b", CLAIM.claim)
        return session.claim is not None and session.claim.uid in dead

    async with started(kernel, outlived=outlived) as broker:
        await broker.hand_over(await broker.acquire(CLAIM, B), link.ours)
        link.ours.close()
        with pytest.raises(DeviceBusy, match="claim team/cam"):
            await broker.acquire(OTHER, C)
        assert kernel.stub.state(stick) == USED
        dead.add("u-1")
        granted = await broker.acquire(OTHER, C)
        assert link.peer_sees_end(), "the old session ends before the new one begins"
        assert kernel.stub.state(stick) == AVAILABLE
        await broker.abandon(granted)


async def test_r48_a_claim_of_this_node_gets_what_an_outlived_session_has(
    kernel: FakeKernel, stick: FakeDevice, link: TcpPair
) -> None:
    dead = False

    async def outlived(name: DeviceName, session: Session) -> bool:
        return dead

    async with started(kernel, outlived=outlived) as broker:
        (offer,) = scan(kernel.root, node="a").offers
        await broker.reclaim(offer)
        await broker.hand_over(await broker.acquire(CLAIM, B), link.ours)
        link.ours.close()
        with pytest.raises(DeviceBusy, match="claim team/cam"):
            await broker.reclaim(offer)
        dead = True
        await broker.reclaim(offer)
        assert link.peer_sees_end()
        assert broker.holder(BUSID) is None
        assert driver_of(stick) == "usb"


async def test_r47_what_this_node_took_meanwhile_is_not_given_away(
    kernel: FakeKernel, stick: FakeDevice
) -> None:
    async with started(kernel, held_here={NAME: "claim lab/mine"}.get) as broker:
        with pytest.raises(DeviceBusy, match="in use by claim lab/mine"):
            await broker.acquire(CLAIM, B)
        assert broker.holder(BUSID) is None
    assert driver_of(stick) == "usb"


async def test_replugged_between_look_and_bind_is_asked_for_again(
    kernel: FakeKernel, stick: FakeDevice
) -> None:
    old = scan(kernel.root, node="a")
    kernel.stub.unplug(stick)
    back = kernel.stub.plug(3, serial=b"A1")  # another device number
    host = StubHost(kernel.root, stub=kernel.stub, sysfs=kernel.stub)
    binder = Binder(kernel.root, events=kernel.events, in_use=lambda busid: None, host=host)
    broker = LocalBroker(binder, lambda: old)
    with pytest.raises(NotFound, match="replugged meanwhile"):
        await broker.acquire(CLAIM, B)
    assert driver_of(back) == "usb"
    assert no_records(kernel)


async def test_r42_an_exporter_that_ends_late_leaves_the_next_ones_session_alone(
    kernel: FakeKernel, stick: FakeDevice, link: TcpPair
) -> None:
    """Two agents during an upgrade; both hear that the first one's session is over."""
    async with started(kernel) as old:
        await old.hand_over(await old.acquire(CLAIM, B), link.ours)
        lease = old._leases[BUSID]
        link.ours.close()
        async with started(kernel) as new:
            granted = await new.acquire(CLAIM, B)
            await old._close(lease)
            assert kernel.stub.state(stick) == AVAILABLE, "it is bound for the new session"
            with TcpPair() as second:
                await new.hand_over(granted, second.ours)
                second.ours.close()
                await old._release(lease)
                assert kernel.stub.state(stick) == USED
            await driven_by(stick, "usb")


async def test_r42_of_two_exporters_that_bind_at_once_one_hands_over(
    kernel: FakeKernel, stick: FakeDevice, link: TcpPair
) -> None:
    async with started(kernel) as one, started(kernel) as other:
        first = await one.acquire(CLAIM, B)
        second = await other.acquire(OTHER, C)
        with pytest.raises(ExportFailed, match="another session meanwhile"):
            await one.hand_over(first, link.ours)
        assert kernel.stub.state(stick) == AVAILABLE
        await other.hand_over(second, link.ours)
        link.ours.close()
        assert kernel.stub.state(stick) == USED


async def test_r32_a_device_that_came_back_as_another_is_named_as_such(
    kernel: FakeKernel, stick: FakeDevice
) -> None:
    kernel.stub.unplug(stick)
    loader = kernel.stub.plug(3, vendor="18d1", product="9302")
    held = {f"/sys{loader.devpath}": DeviceName(NAME)}
    host = StubHost(kernel.root, stub=kernel.stub, sysfs=kernel.stub)
    binder = Binder(kernel.root, events=kernel.events, in_use=lambda busid: None, host=host)
    broker = LocalBroker(binder, lambda: scan(kernel.root, node="a", held=held))
    with pytest.raises(IdentityChanged, match=r"came back as 18d1:9302 at 1-1\.3"):
        await broker.acquire(CLAIM, B)
    assert driver_of(loader) == "usb"
