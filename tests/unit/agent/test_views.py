# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from tests.fakes.kube import FakeKube
from tests.unit.slices.samples import offer
from usbdra.agent.views import PublishedDevices
from usbdra.discovery.snapshot import Snapshot
from usbdra.kube.types import RESOURCE_SLICE
from usbdra.plugin.config import Target
from usbdra.plugin.contracts import DirectFact, UsbFact, VhciFact
from usbdra.slices.build import Layout, SliceOptions, build
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


async def test_only_the_newest_generation_counts() -> None:
    api = FakeKube()
    publish(api, "node-a", offer("old"))
    stale = api.all(RESOURCE_SLICE)[1]
    publish(api, "node-a", offer("new"))
    stale["metadata"]["name"] = "stale"
    stale["spec"]["pool"]["generation"] = 0
    api.put(RESOURCE_SLICE, stale)
    view = views(api, "node-b")
    assert await view.lookup("usb-node-a", "old") is None
    assert await view.lookup("usb-node-a", "new") is not None
