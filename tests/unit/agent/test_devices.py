# SPDX-License-Identifier: Apache-2.0
"""Devices taken for claims on the fake kernel, given back, and looked at in between."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import repeat
from pathlib import Path

import pytest

from tests.fakes.host_drivers import HostDrivers
from tests.fakes.kernel import FakeKernel, Remote
from tests.fakes.sysfs import FakeDevice, Interface
from tests.fakes.tcp import TcpPair
from usbdra.agent.devices import Connection, NodeDevices
from usbdra.discovery.inventory import scan
from usbdra.errors import DeviceBusy, IdentityChanged, NoFreePort, NotFound, Refused
from usbdra.exporter import fence
from usbdra.importer.attach import Attacher, AttachLimits
from usbdra.plugin.contracts import Order
from usbdra.state.claims import ClaimRef, DeviceRecord, Held, Identity, Intent, Route
from usbdra.transport.watch import endpoints_of
from usbdra.types import (
    BusId,
    ClaimUid,
    DeviceName,
    Endpoints,
    Hub,
    NodeName,
    Offer,
    PortState,
    RemoteDevice,
)
from usbdra.vhci.driver import VhciDriver

A, B = NodeName("a"), NodeName("b")
REF = ClaimRef("lab", "stick", ClaimUid("uid-1"))
OTHER = ClaimRef("lab", "other", ClaimUid("uid-2"))
NAME = DeviceName("usb-0781-5581-a1")
IDENTITY = Identity("0781", "5581", "A1")
STORAGE = Interface(8, 6, 80, driver="usb-storage")


class Node:
    """NodeDevices on a fake kernel; `exporter` is the device that a dialled peer grants."""

    def __init__(self, root: Path, kernel: FakeKernel) -> None:
        self.kernel, self.root = kernel, root
        self.abroad: str | None = None
        self.reached: tuple[ClaimUid, NodeName] | None = None
        self.unplugged: list[tuple[ClaimUid, bool]] = []
        self.was_abroad = False
        self.ending: Callable[[], object] = lambda: None
        self.assigned = ""
        self.room: Iterator[bool] = repeat(True)
        self.exporter = remote()
        self.link: Endpoints | None = None
        self.pairs: list[TcpPair] = []
        self.intents: list[Intent] = []
        self.drivers: list[Mapping[str, str]] = []
        self.host_drivers = HostDrivers(self.root)
        self.devices = self.agent()

    def agent(self) -> NodeDevices:
        vhci = VhciDriver(self.root, native=self.kernel.vhci)
        limits = AttachLimits(enumerate=1.0)
        return NodeDevices(
            peers=self,
            attacher=Attacher(vhci, self.kernel.events, root=self.root, limits=limits),
            vhci=vhci,
            events=self.kernel.events,
            snapshot=lambda: scan(self.root, node="b"),
            leases=self,
            allowed=self.allow,
            root=self.root,
            detach_timeout=1.0,
            host_drivers=self.host_drivers,
            before_attach=self.check_room,
            before_release=self.unplug,
        )

    async def unplug(self, claim: ClaimUid) -> None:
        """As agent/plugs.py: the device is still attached to the node at this moment."""
        ports = VhciDriver(self.root, native=self.kernel.vhci).table().ports
        used = any(port.state is PortState.USED for port in ports)
        self.unplugged.append((claim, used))

    def check_room(self, order: Order) -> None:
        if not next(self.room):
            raise NoFreePort("high", 1, 1, "b")

    def allow(self, device: DeviceName, namespace: str) -> None:
        fence.require(device, namespace, self.assigned, required=False)

    async def reclaim(self, offer: Offer) -> bool:
        if self.abroad is not None:
            raise DeviceBusy(offer.name, self.abroad)
        self.ending()
        return self.was_abroad

    @contextmanager
    def reaching(self, claim: ClaimUid, node: NodeName) -> Iterator[None]:
        self.reached = (claim, node)
        yield
        self.reached = None

    async def connect(self, order: Order) -> Connection:
        pair = TcpPair()
        self.pairs.append(pair)
        self.link = endpoints_of(pair.ours)
        return Connection(pair.ours, self.exporter, ())

    async def intent(self, about: Intent) -> None:
        self.intents.append(about)

    async def off(self, drivers: Mapping[str, str]) -> None:
        self.drivers.append(drivers)

    def close(self) -> None:
        for pair in self.pairs:
            pair.ours.close()
            pair.peer.close()


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with FakeKernel(tmp_path) as kernel:
        kernel.vhci.remote = Remote(serial=b"A1")
        made = Node(tmp_path, kernel)
        yield made
        made.close()


def remote(**changes: object) -> RemoteDevice:
    device = RemoteDevice(
        BusId("1-1"), 1, 7, 3, "0781", "5581", "0100", 0, 0, 0, 1, ((8, 6, 80),), NAME, "A1"
    )
    return replace(device, **changes)  # type: ignore[arg-type]


def order(node: NodeName = A, claim: ClaimRef = REF, host_drivers: bool = True) -> Order:
    hub = Hub.HIGH if node == A else None
    return Order(claim, NAME, node, hub, IDENTITY, host_drivers)


def record(held: Held | None, route: Route = Route.VHCI, **more: object) -> DeviceRecord:
    made = DeviceRecord("usb", "usb-a", NAME, NAME, A, route, identity=IDENTITY, held=held)
    return replace(made, **more)  # type: ignore[arg-type]


async def test_a_device_leaves_its_machine_before_it_leaves_the_node(node: Node) -> None:
    held = await node.devices.attach_remote(order(), node.intent)
    await node.devices.release(REF, record(held))
    assert node.unplugged == [(REF.uid, True)]
    await node.devices.release(REF, record(None, Route.OBSERVE))
    assert len(node.unplugged) == 1


async def test_a_remote_device_is_held_with_its_link_and_given_back(node: Node) -> None:
    held = await node.devices.attach_remote(order(), node.intent)
    assert held.identity == IDENTITY
    assert (held.port, held.devid) == (node.intents[0].port, node.intents[0].devid) == (0, 0x10007)
    assert held.link == node.link
    assert await node.devices.intact(REF, record(held))
    await node.devices.release(REF, record(held))
    assert not await node.devices.intact(REF, record(held))
    await node.devices.release(REF, record(held))
    assert node.kernel.sockets == 0


async def test_a_port_that_stops_is_not_intact(node: Node) -> None:
    """The kernel gives the socket up first and frees the row later."""
    held = await node.devices.attach_remote(order(), node.intent)
    assert held.port is not None
    node.kernel.vhci.stick(held.port)
    node.kernel.vhci.lose_link(held.port)
    assert not await node.devices.intact(REF, record(held))
    assert (node.root / "sys/bus/usb/devices" / held.busid).exists()


async def test_what_is_not_provably_ours_is_left_alone(node: Node) -> None:
    held = await node.devices.attach_remote(order(), node.intent)
    for wrong in (replace(held, devid=0x10008), replace(held, port=None, devid=None)):
        await node.devices.release(REF, record(wrong))
    impostor = replace(held, identity=Identity("0781", "5581", "B2"))
    await node.devices.release(REF, record(impostor))
    assert await node.devices.intact(REF, record(held))


async def test_another_device_than_was_allocated_is_refused_before_the_attach(node: Node) -> None:
    node.exporter = remote(serial="B2")
    with pytest.raises(IdentityChanged, match="should be 0781:5581"):
        await node.devices.attach_remote(order(), node.intent)
    assert node.intents == []
    assert node.pairs[0].peer_sees_end()


@pytest.mark.parametrize("answers", [[False], [True, False]], ids=["before", "at the lock"])
async def test_no_port_is_taken_that_is_not_to_be_had(node: Node, answers: list[bool]) -> None:
    node.room = iter(answers)
    with pytest.raises(NoFreePort, match="1 of 1 in use"):
        await node.devices.attach_remote(order(), node.intent)
    assert node.intents == []
    assert node.kernel.sockets == 0
    assert all(pair.peer_sees_end() for pair in node.pairs)
    assert len(node.pairs) == len(answers) - 1


async def test_r03_no_free_port_is_an_error_that_passes(node: Node) -> None:
    taken = [await node.devices.attach_remote(order(), node.intent) for _ in range(8)]
    with pytest.raises(NoFreePort, match="no high-speed port free") as caught:
        await node.devices.attach_remote(order(), node.intent)
    assert caught.value.reason == "NoFreeUSBIPPort"
    assert node.pairs[-1].peer_sees_end(), "the exporter is told at once"
    await node.devices.release(REF, record(taken[3]))
    assert (await node.devices.attach_remote(order(), node.intent)).port == taken[3].port


async def test_a_device_of_another_namespace_is_not_taken_on_its_own_node_either(
    node: Node,
) -> None:
    node.kernel.stub.plug(3, serial=b"A1")
    node.assigned = "other"
    with pytest.raises(Refused, match="assigned to another namespace than lab"):
        await node.devices.take_local(order(B), node.off)
    assert node.devices.holder(NAME) is None
    node.assigned = "lab"
    await node.devices.take_local(order(B), node.off)
    assert node.devices.holder(NAME) == REF


async def test_a_local_device_is_held_for_one_claim(node: Node) -> None:
    node.kernel.stub.plug(3, serial=b"A1")
    held = await node.devices.take_local(order(B), node.off)
    assert (held.busid, held.port, held.identity) == ("1-1.3", None, IDENTITY)
    assert node.devices.holder(NAME) == REF
    with pytest.raises(DeviceBusy, match="claim lab/stick"):
        await node.devices.take_local(order(B, OTHER), node.off)
    await node.devices.release(OTHER, record(held, Route.DIRECT))
    assert node.devices.holder(NAME) == REF
    await node.devices.release(REF, record(held, Route.DIRECT))
    assert node.devices.holder(NAME) is None
    assert node.drivers == []


async def test_a_restarted_agent_knows_its_holders_by_their_records(node: Node) -> None:
    node.kernel.stub.plug(3, serial=b"A1")
    held = await node.devices.take_local(order(B), node.off)
    again = node.agent()
    assert await again.intact(REF, record(held, Route.DIRECT))
    assert again.holder(NAME) == REF
    assert not await again.intact(OTHER, record(held, Route.DIRECT))


async def test_r47_what_another_node_has_is_not_given_here(node: Node) -> None:
    node.kernel.stub.plug(3, serial=b"A1")
    node.abroad = "claim lab/other of node-c"
    with pytest.raises(DeviceBusy, match="claim lab/other of node-c"):
        await node.devices.take_local(order(B), node.off)


async def test_r48_a_device_that_comes_back_from_abroad_is_given_with_its_nodes(
    node: Node,
) -> None:
    """The host's driver makes them anew, a moment after the other's session has ended."""
    stick = node.kernel.stub.plug(3, serial=b"A1", interfaces=(STORAGE,))
    stick.bind_interface(0, None)

    def driver_comes_back() -> None:
        stick.bind_interface(0, "usb-storage")
        made = stick.child("block", "sda")
        node.kernel.source.child("add", "block", stick, made)

    node.was_abroad = True
    node.ending = lambda: asyncio.get_running_loop().call_later(0.02, driver_comes_back)
    held = await node.devices.take_local(order(B), node.off)
    assert [child.path for child in held.children] == ["/dev/sda"]


async def test_a_local_device_that_is_away_or_of_no_use_is_refused(node: Node) -> None:
    with pytest.raises(NotFound, match="not plugged into this node any more"):
        await node.devices.take_local(order(B), node.off)
    stick = node.kernel.stub.plug(3, serial=b"A1")
    stick.write("authorized", b"0\n")
    with pytest.raises(Refused, match="not offered"):
        await node.devices.take_local(order(B), node.off)


async def test_a_replugged_local_device_is_not_the_one_that_was_held(node: Node) -> None:
    stick = node.kernel.stub.plug(3, serial=b"A1")
    held = await node.devices.take_local(order(B), node.off)
    node.kernel.stub.unplug(stick)
    assert not await node.devices.intact(REF, record(held, Route.DIRECT))
    node.kernel.stub.plug(3, serial=b"A1")
    assert not await node.devices.intact(REF, record(held, Route.DIRECT))


def driver_of(device: FakeDevice) -> str | None:
    link = device.interface() / "driver"
    return link.readlink().name if link.is_symlink() else None


async def test_r67_host_drivers_are_kept_off_and_given_back(node: Node) -> None:
    stick = node.kernel.stub.plug(3, serial=b"A1", interfaces=(STORAGE,))
    assert driver_of(stick) == "usb-storage"
    held = await node.devices.take_local(order(B, host_drivers=False), node.off)
    assert node.drivers == [{"1-1.3:1.0": "usb-storage"}]
    assert driver_of(stick) is None
    assert held.children == ()
    kept = record(held, Route.DIRECT, drivers_off=node.drivers[0])
    await node.devices.release(REF, kept)
    assert driver_of(stick) == "usb-storage"
    await node.devices.release(REF, kept)


async def test_a_driver_that_does_not_come_back_keeps_no_claim(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    stick = node.kernel.stub.plug(3, serial=b"A1", interfaces=(STORAGE,))
    held = await node.devices.take_local(order(B, host_drivers=False), node.off)
    node.host_drivers.refuse["bind"] = errno.EIO
    await node.devices.release(REF, record(held, Route.DIRECT, drivers_off=node.drivers[0]))
    assert "1-1.3:1.0 got no driver again" in caplog.text
    assert node.devices.holder(NAME) is None
    assert driver_of(stick) is None


async def test_drivers_go_back_only_to_the_device_they_were_taken_from(node: Node) -> None:
    stick = node.kernel.stub.plug(3, serial=b"A1", interfaces=(STORAGE,))
    held = await node.devices.take_local(order(B, host_drivers=False), node.off)
    node.kernel.stub.unplug(stick)
    stranger = node.kernel.stub.plug(3, serial=b"B2", interfaces=(STORAGE,))
    (stranger.interface() / "driver").unlink()
    await node.devices.release(REF, record(held, Route.DIRECT, drivers_off=node.drivers[0]))
    assert driver_of(stranger) is None


async def test_admin_access_looks_and_holds_nothing(node: Node) -> None:
    assert await node.devices.observe(order(B)) is None
    node.kernel.stub.plug(3, serial=b"A1")
    held = await node.devices.observe(order(B))
    assert held is not None
    await node.devices.release(REF, record(held, Route.OBSERVE))
    assert node.devices.holder(NAME) is None
    assert not await node.devices.intact(REF, record(None))
    await asyncio.sleep(0)
