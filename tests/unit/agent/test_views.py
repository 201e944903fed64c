# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from tests.fakes.broker import STICK
from tests.fakes.kube import FakeKube
from tests.unit.slices.samples import offer
from usbdra.agent.views import PublishedDevices
from usbdra.discovery.snapshot import Snapshot
from usbdra.kube.types import RESOURCE_SLICE, Kind, Object
from usbdra.plugin.config import Target
from usbdra.plugin.contracts import DirectFact, UsbFact, VhciFact
from usbdra.slices.build import Layout, SliceOptions, build
from usbdra.slices.outside import HostOwner, build_outside
from usbdra.slices.publish import Owner
from usbdra.types import DeviceName, Hub, NodeName, Offer, Speed

GROUP = "example.com"
DRIVER = "usb.example.com"
LONG = "usb-0951-1666-" + "x" * 49


def publish(api: FakeKube, node: str, *offers: Offer, layout: Layout = Layout.HUB) -> None:
    options = SliceOptions(node=node, group=GROUP, layout=layout)
    for item in build(offers, {Hub.HIGH: 2, Hub.SUPER: 1}, options):
        api.put(RESOURCE_SLICE, Owner(node, "uid", DRIVER).own(item))


def views(api: FakeKube, node: str, *offers: Offer) -> PublishedDevices:
    return PublishedDevices(api, DRIVER, NodeName(node), lambda: Snapshot(offers=offers))


class Reads:
    """Gets and nothing else, by name."""

    def __init__(self, api: FakeKube) -> None:
        self._api = api
        self.names: list[str] = []

    async def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object:
        self.names.append(name)
        return await self._api.get(kind, name)


async def test_own_devices_come_from_the_snapshot_without_a_read() -> None:
    own = offer("stick", exportable=False, reason="low speed")
    api = FakeKube()
    fact = await views(api, "node-b", own).lookup("usb-node-b", "stick")
    assert isinstance(fact, UsbFact)
    assert (fact.node, fact.exportable, fact.reason) == ("node-b", False, "low speed")
    assert fact.identity.serial == "60A44C413FAE"


@pytest.mark.parametrize("layout", list(Layout))
async def test_devices_of_other_nodes_come_from_their_slices(layout: Layout) -> None:
    api = FakeKube()
    publish(api, "node-a", offer("fast", speed=Speed.SUPER_PLUS), offer("stick"), layout=layout)
    view = views(api, "node-b")
    fast = await view.lookup("usb-node-a", "fast")
    assert isinstance(fast, UsbFact)
    assert (fast.speed, fast.node, fast.identity.vendor_id) == (Speed.SUPER_PLUS, "node-a", "0951")
    assert await view.find(Target(DeviceName("stick"), NodeName("node-a"))) is not None
    assert await view.lookup("usb-node-a", "gone") is None
    assert await view.lookup("other-node-a", "stick") is None


@pytest.mark.parametrize(
    ("device", "fact"),
    [
        ("direct", DirectFact(NodeName("node-b"))),
        ("direct-12", DirectFact(NodeName("node-b"))),
        ("vhci-super", VhciFact(NodeName("node-b"), Hub.SUPER)),
        ("vhci-high-7", VhciFact(NodeName("node-b"), Hub.HIGH)),
        ("vhci-full", None),
        ("vhci-high-", None),
        ("direct-stick", None),
    ],
)
async def test_links_are_known_by_name_also_when_they_are_not_published_any_more(
    device: str, fact: object
) -> None:
    assert await views(FakeKube(), "node-b").lookup("usblink-node-b", device) == fact


async def test_slices_are_read_by_their_names_and_never_listed() -> None:
    api = FakeKube()
    publish(api, "node-a", *(offer(f"stick-{number:03d}") for number in range(300)))
    publish(api, "node-c", offer("other"))
    reads = Reads(api)
    view = PublishedDevices(reads, DRIVER, NodeName("node-b"), lambda: Snapshot(offers=()))
    for name, count in (("stick-000", 1), ("stick-150", 2), ("stick-299", 3), ("none", 3)):
        found = await view.lookup("usb-node-a", name)
        assert (found is None) == (name == "none")
        assert len(reads.names) == count
        reads.names.clear()
    assert await view.find(Target(DeviceName("other"), NodeName("node-c"))) is not None
    assert await view.find(Target(DeviceName("other"), NodeName("node-d"))) is None


async def test_a_slice_that_has_left_the_pool_says_nothing() -> None:
    api = FakeKube()
    publish(api, "node-a", *(offer(f"stick-{number:03d}") for number in range(129)))
    publish(api, "node-a", offer("stick-000"))  # the second slice is still to be deleted
    view = views(api, "node-b")
    assert await view.lookup("usb-node-a", "stick-128") is None
    assert await view.lookup("usb-node-a", "stick-000") is not None


async def test_a_slice_of_another_driver_under_the_name_of_ours_says_nothing() -> None:
    api = FakeKube()
    publish(api, "node-a", offer("stick"))
    for item in api.all(RESOURCE_SLICE):
        item["spec"]["driver"] = "usb.example.org"
        api.put(RESOURCE_SLICE, item)
    assert await views(api, "node-b").lookup("usb-node-a", "stick") is None


async def test_devices_of_a_host_outside_come_from_the_slices_of_its_pool() -> None:
    api = FakeKube()
    publish(api, "node-a", offer("stick"))
    owner = HostOwner("pi", "uid", DRIVER, "example.com/v1alpha2", "USBExporterHost")
    for item in build_outside("pi", GROUP, [STICK], {}):
        api.put(RESOURCE_SLICE, owner.own(item))
    view = views(api, "node-b")
    fact = await view.lookup("usb-outside/pi", str(STICK.name))
    assert isinstance(fact, UsbFact)
    assert (fact.node, fact.exportable, fact.speed) == ("outside/pi", True, Speed.HIGH)
    assert view.owner("usb-outside/pi") == "outside/pi"
    assert await view.lookup("usb-outside/pi", "stick") is None
