# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.kernel import FakeKernel, Remote
from tests.fakes.sysfs import KEYBOARD, Interface
from tests.fakes.tcp import TcpPair
from usbdra.errors import AttachFailed, IdentityChanged, NoFreePort
from usbdra.importer.attach import Attacher, AttachLimits
from usbdra.importer.children import SettleLimits
from usbdra.types import BusId, ChildNode, Hub, PortState, RemoteDevice
from usbdra.vhci.driver import VhciDriver

REMOTE = RemoteDevice(
    busid=BusId("3-7"),
    busnum=3,
    devnum=7,
    speed_code=3,
    vendor_id="0781",
    product_id="5581",
    bcd="0100",
    class_code=0,
    subclass=0,
    protocol=0,
    configuration=1,
    interfaces=((8, 6, 80),),
)
LIMITS = AttachLimits(enumerate=0.1, detach=0.1, settle=SettleLimits(driver=0.05, total=0.1))


@pytest.fixture
async def kernel(tmp_path: Path) -> AsyncIterator[FakeKernel]:
    async with FakeKernel(tmp_path) as fake:
        yield fake


@pytest.fixture
def driver(kernel: FakeKernel) -> VhciDriver:
    return VhciDriver(kernel.root, native=kernel.vhci)


@pytest.fixture
def attacher(kernel: FakeKernel, driver: VhciDriver) -> Attacher:
    return Attacher(driver, kernel.events, root=kernel.root, limits=LIMITS)


@pytest.fixture
def link() -> Iterator[TcpPair]:
    with TcpPair() as pair:
        yield pair


def all_free(driver: VhciDriver) -> bool:
    return all(port.state is PortState.FREE for port in driver.table().ports)


async def test_a_disk_is_usable_when_attach_returns(
    kernel: FakeKernel, attacher: Attacher, link: TcpPair
) -> None:
    phases: list[str] = []
    found = await attacher.attach(
        link.ours,
        REMOTE,
        timings=(("connect", 0.1), ("exporter.bind", 0.2)),
        progress=lambda phase, seconds: phases.append(phase),
    )
    assert (found.port, found.hub, found.device.busid) == (0, Hub.HIGH, "10-1")
    assert found.device.node_path == "/dev/bus/usb/010/002"
    assert found.children == (ChildNode("block", "/dev/sda", 8, 0, 0),)
    assert found.unsettled == ()
    assert phases == ["attach", "enumerate", "settle"]
    names = [phase for phase, _ in found.timings]
    assert names == ["connect", "exporter.bind", "attach", "enumerate", "settle"]
    assert link.ours.fileno() == -1
    assert kernel.vhci.sockets == 1


async def test_two_interfaces_each_with_its_nodes(
    kernel: FakeKernel, attacher: Attacher, link: TcpPair
) -> None:
    (kernel.root / "sys/class/hidraw").mkdir(parents=True)
    serial = Interface(0xFF, number=1, driver="cp210x")
    kernel.vhci.remote = Remote(
        interfaces=(KEYBOARD, serial),
        children=(("hidraw", "hidraw0", 0), ("tty", "ttyUSB0", 1)),
    )
    found = await attacher.attach(link.ours, REMOTE)
    assert [(child.kind, child.interface) for child in found.children] == [
        ("hidraw", 0),
        ("tty", 1),
    ]
    assert found.unsettled == ()


async def test_a_missing_driver_is_reported_and_not_fatal(
    kernel: FakeKernel, attacher: Attacher, link: TcpPair
) -> None:
    kernel.vhci.remote = Remote(
        interfaces=(
            Interface(8, 6, 80, number=0),  # class storage, no module
            Interface(0xFF, number=1),  # no driver expected
        ),
        children=(),
    )
    found = await attacher.attach(link.ours, REMOTE)
    assert found.unsettled == ("interface 10-1:1.0 (class 08) has no driver on this machine",)
    assert kernel.vhci.sockets == 1


async def test_a_node_that_never_comes_is_reported_at_the_deadline(
    kernel: FakeKernel, attacher: Attacher, link: TcpPair
) -> None:
    kernel.vhci.remote = Remote(children=())
    found = await attacher.attach(link.ours, REMOTE)
    assert found.unsettled == ("interface 10-1:1.0 (usb-storage) has no block node yet",)


async def test_a_second_disk_that_is_still_being_scanned_is_waited_for(
    kernel: FakeKernel, attacher: Attacher, link: TcpPair
) -> None:
    attaching = asyncio.create_task(attacher.attach(link.ours, REMOTE))
    device = None
    while device is None:
        await asyncio.sleep(0)
        device = kernel.vhci.rows[0].device
    unit = device.interface() / "host6/target6:0:0/6:0:0:1"
    unit.mkdir(parents=True)
    (unit / "type").write_text("0\n")
    await asyncio.sleep(0.01)
    assert not attaching.done()
    (unit / "block").mkdir()
    kernel.source.device("change", device)
    found = await attaching
    assert found.unsettled == ()


@pytest.mark.parametrize("how", ["silent", "drop", "error"])
async def test_r07_failed_enumeration_leaves_nothing_and_the_next_try_works(
    kernel: FakeKernel, attacher: Attacher, driver: VhciDriver, link: TcpPair, how: str
) -> None:
    kernel.vhci.enumeration = how  # type: ignore[assignment]
    with pytest.raises(AttachFailed, match="did not appear on port 0"):
        await attacher.attach(link.ours, REMOTE)
    assert all_free(driver)
    assert kernel.sockets == 0
    assert link.peer_sees_end()  # which is how the exporter learns to release
    kernel.vhci.enumeration = "works"
    with TcpPair() as again:
        found = await attacher.attach(again.ours, REMOTE)
    assert found.port == 0


async def test_r08_a_port_that_stays_stuck_does_not_hide_the_first_error(
    kernel: FakeKernel, attacher: Attacher, driver: VhciDriver, link: TcpPair
) -> None:
    kernel.vhci.enumeration = "silent"
    kernel.vhci.stick(0)
    with pytest.raises(AttachFailed, match="did not appear"):
        await attacher.attach(link.ours, REMOTE)
    assert driver.table().hubs[Hub.HIGH].broken == 1


@pytest.mark.parametrize(
    ("came", "text"),
    [
        (Remote(product="5591"), "0781:5591 came instead"),
        (Remote(serial=b"B2"), "serial 'A1' and one with 'B2'"),
        (Remote(), "one with '' came"),
    ],
)
async def test_another_device_than_granted_is_detached(
    kernel: FakeKernel,
    attacher: Attacher,
    driver: VhciDriver,
    link: TcpPair,
    came: Remote,
    text: str,
) -> None:
    kernel.vhci.remote = came
    with pytest.raises(IdentityChanged, match=text):
        await attacher.attach(link.ours, replace(REMOTE, serial="A1"))
    assert all_free(driver)
    assert kernel.sockets == 0


async def test_no_free_port_ends_the_connection(
    kernel: FakeKernel, attacher: Attacher, link: TcpPair
) -> None:
    for port in range(8):
        kernel.vhci.take(port)
    with pytest.raises(NoFreePort):
        await attacher.attach(link.ours, REMOTE)
    assert link.peer_sees_end()


async def test_link_lost_while_drivers_settle(
    kernel: FakeKernel, attacher: Attacher, driver: VhciDriver, link: TcpPair
) -> None:
    kernel.vhci.remote = Remote(children=())
    attaching = asyncio.create_task(attacher.attach(link.ours, REMOTE))
    while kernel.vhci.rows[0].device is None:
        await asyncio.sleep(0)
    link.peer.close()
    with pytest.raises(AttachFailed, match=r"link ended|went away"):
        await attaching
    assert all_free(driver)


async def test_cancelled_attach_leaves_nothing(
    kernel: FakeKernel, attacher: Attacher, driver: VhciDriver, link: TcpPair
) -> None:
    kernel.vhci.enumeration = "silent"
    attaching = asyncio.create_task(attacher.attach(link.ours, REMOTE))
    while not kernel.vhci.attach_writes:
        await asyncio.sleep(0)
    attaching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attaching
    assert all_free(driver)
    assert kernel.sockets == 0
