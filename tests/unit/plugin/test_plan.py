# SPDX-License-Identifier: Apache-2.0
"""Plans: every form of a claim, and every refusal before anything is touched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from usbdra.errors import ConfigError, NotFound, Refused
from usbdra.plugin.config import Target
from usbdra.plugin.contracts import Fact, UsbFact, VhciFact
from usbdra.plugin.plan import plan, read_claim, targets
from usbdra.state.claims import ClaimRecord, LinkRecord, Phase, Route
from usbdra.types import DeviceName, Hub, NodeName, Speed

from .claims import (
    BOOT,
    DRIVER,
    FACTS,
    HERE,
    TIES,
    claim,
    local_claim,
    opaque,
    remote_claim,
    result,
    usb_fact,
)

TARGET = Target(DeviceName("stick"), NodeName("a"))


def planned(
    body: dict[str, Any],
    facts: Mapping[tuple[str, str], Fact] = FACTS,
    named: Mapping[Target, UsbFact] | None = None,
) -> ClaimRecord:
    return plan(read_claim(body, DRIVER), facts, named or {}, HERE, BOOT)


def test_remote_device_over_its_hub() -> None:
    record = planned(remote_claim())
    assert (record.phase, record.boot_id) == (Phase.PREPARING, BOOT)
    assert str(record.ref) == "claim lab/stick (uid-1)"
    (device,) = record.devices
    assert (device.route, device.hub, device.name, device.node) == (
        Route.VHCI,
        Hub.HIGH,
        "stick",
        "a",
    )
    assert device.identity is not None
    assert device.identity.serial == "STICK"
    assert device.held is None
    assert record.links == (LinkRecord("link/vhci", "usblink-b", "vhci-high", "share-1"),)


def test_local_device_needs_no_port() -> None:
    record = planned(local_claim())
    (device,) = record.devices
    assert (device.route, device.hub) == (Route.DIRECT, None)
    assert record.links == (LinkRecord("link/direct", "usblink-b", "direct", "share-2"),)


def test_super_speed_device_goes_to_the_super_hub() -> None:
    body = claim(
        result("usb", "usb-a", "camera"),
        result("link/vhci", "usblink-b", "vhci-super"),
        ties=TIES,
    )
    assert planned(body).devices[0].hub is Hub.SUPER


def test_device_alone_leaves_the_way_to_the_agent() -> None:
    record = planned(claim(result("usb", "usb-a", "camera")))
    assert (record.devices[0].route, record.devices[0].hub) == (Route.VHCI, Hub.SUPER)
    assert record.links == ()


def test_per_port_layout() -> None:
    body = claim(result("usb", "usb-b", "mouse"), result("link/direct", "usblink-b", "direct-0"))
    assert planned(body).devices[0].route is Route.DIRECT
    body = claim(result("usb", "usb-a", "stick"), result("link/vhci", "usblink-b", "vhci-high-0"))
    assert planned(body).devices[0].hub is Hub.HIGH


def test_named_device_over_a_port() -> None:
    body = claim(
        result("usb/remote", "usblink-b", "vhci-high", shareID="s"),
        config=[opaque(requests=["usb"], device={"name": "stick", "node": "a"})],
    )
    assert targets(read_claim(body, DRIVER)) == {TARGET}
    for named in ({}, {TARGET: usb_fact("stick")}):
        record = planned(body, named=named)
        (device,) = record.devices
        assert (device.name, device.node, device.route) == ("stick", "a", Route.VHCI)
        assert (device.base_request, device.device, device.share_id) == ("usb", "vhci-high", "s")
        assert record.links == ()
        assert (device.identity is None) == (not named)


def test_named_device_chosen_on_its_own_node() -> None:
    body = claim(
        result("usb/local", "usb-b", "mouse"),
        config=[opaque(device={"name": "mouse", "node": "b"})],
    )
    assert planned(body).devices[0].route is Route.DIRECT


def test_named_device_must_fit_its_port() -> None:
    body = claim(
        result("usb/remote", "usblink-b", "vhci-high"),
        config=[opaque(device={"name": "camera", "node": "a"})],
    )
    named = {Target(DeviceName("camera"), NodeName("a")): usb_fact("camera", speed=Speed.SUPER)}
    with pytest.raises(Refused, match="camera needs a port of the super-speed hub"):
        planned(body, named=named)


def test_parameters_and_allocation_must_agree() -> None:
    body = claim(
        result("usb/local", "usb-b", "mouse"),
        config=[opaque(device={"name": "stick", "node": "a"})],
    )
    with pytest.raises(Refused, match="name device stick of node a, but mouse of node b"):
        planned(body)


def test_two_requests_with_their_own_links() -> None:
    body = claim(
        result("one", "usb-a", "stick"),
        result("two", "usb-b", "mouse"),
        result("via-two/direct", "usblink-b", "direct"),
        result("via-one/vhci", "usblink-b", "vhci-high"),
        ties=[["one", "via-one"], ["two", "via-two"]],
    )
    record = planned(body)
    assert [(d.request, d.route) for d in record.devices] == [
        ("one", Route.VHCI),
        ("two", Route.DIRECT),
    ]


def test_several_devices_of_one_request_are_numbered() -> None:
    body = claim(
        result("usb", "usb-a", "stick"),
        result("usb", "usb-a", "second"),
        result("link", "usblink-b", "vhci-high", shareID="1"),
        result("link", "usblink-b", "vhci-high", shareID="2"),
        ties=[["usb", "link"]],
    )
    record = planned(body)
    assert [(d.name, d.slot, d.slots) for d in record.devices] == [
        ("stick", 0, 2),
        ("second", 1, 2),
    ]
    assert [link.share_id for link in record.links] == ["1", "2"]


def test_admin_access_looks_and_holds_nothing() -> None:
    body = claim(result("usb", "usb-a", "stick", adminAccess=True))
    facts = {**FACTS, ("usb-a", "stick"): usb_fact("stick", exportable=False)}
    (device,) = planned(body, facts).devices
    assert (device.route, device.exclusive) == (Route.OBSERVE, False)


@pytest.mark.parametrize("node", ["a", "b"], ids=["elsewhere", "on its own node"])
def test_admin_access_to_a_port_takes_no_device_that_parameters_name(node: str) -> None:
    body = claim(
        result("usb/remote", "usblink-b", "vhci-high", adminAccess=True),
        config=[opaque(device={"name": "stick", "node": node})],
    )
    target = Target(DeviceName("stick"), NodeName(node))
    fact = usb_fact("stick", node=node, exportable=False)
    (device,) = planned(body, named={target: fact}).devices
    assert (device.route, device.exclusive) == (Route.OBSERVE, False)


def test_class_parameters_give_way_to_the_claim() -> None:
    body = claim(
        result("usb", "usb-a", "stick"),
        config=[
            opaque(owner={"uid": 107}, envPrefix="CLAIM"),
            opaque("FromClass", owner={"uid": 1, "gid": 2}, envPrefix="CLASS"),
            opaque(requests=["other"], owner={"uid": 9}),
            {"source": "FromClaim", "opaque": {"driver": "gpu.example", "parameters": {"x": 1}}},
        ],
    )
    (device,) = planned(body).devices
    assert (device.config["uid"], device.config["gid"]) == (107, 2)
    assert device.config["env_prefix"] == "CLAIM"


def test_other_drivers_results_are_not_ours() -> None:
    body = claim(
        {"request": "gpu", "driver": "gpu.example", "pool": "p", "device": "d"},
        result("usb", "usb-a", "stick"),
    )
    assert [d.request for d in planned(body).devices] == ["usb"]


def test_pod_claim_name_is_kept() -> None:
    body = claim(
        result("usb", "usb-a", "stick"),
        annotations={"resource.kubernetes.io/pod-claim-name": "my-usb"},
    )
    assert planned(body).ref.pod_claim_name == "my-usb"


def test_a_port_too_many_harms_nobody() -> None:
    body = claim(
        result("usb", "usb-b", "mouse"), result("spare", "usblink-b", "vhci-high"), ties=[]
    )
    record = planned(body)
    assert [d.name for d in record.devices] == ["mouse"]
    assert [link.request for link in record.links] == ["spare"]


@pytest.mark.parametrize(
    ("body", "error", "text"),
    [
        (claim(), Refused, "has no device of usb"),
        (claim(result("usb", "usb-a", "gone")), NotFound, "usb-a/gone is not published any more"),
        (claim(result("link", "usblink-b", "vhci-high")), Refused, "holds a port for no device"),
        (
            claim(
                result("usb", "usb-a", "stick"),
                result("link/direct", "usblink-b", "direct"),
                ties=TIES,
            ),
            Refused,
            "stick is reached over the high-speed hub from node b, but direct was allocated",
        ),
        (
            claim(
                result("usb", "usb-a", "stick"),
                result("link/vhci", "usblink-b", "vhci-super"),
                ties=TIES,
            ),
            Refused,
            "but vhci-super was allocated",
        ),
        (
            claim(result("a", "usb-a", "stick"), result("b", "usb-a", "stick")),
            Refused,
            "asks for device stick of node a 2 times",
        ),
        (
            claim(result("usb", "usb-a", "stick"), config=[opaque(colour="red")]),
            ConfigError,
            "unknown field 'colour'",
        ),
    ],
)
def test_refusals(body: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        planned(body)


def test_unallocated_claim() -> None:
    body = claim(result("usb", "usb-a", "stick"))
    body["status"] = {}
    with pytest.raises(Refused, match=r"claim lab/stick \(uid-1\) is not allocated"):
        planned(body)


@pytest.mark.parametrize(
    ("fact", "text"),
    [
        (usb_fact("stick", exportable=False, reason="12 Mbit/s stays local"), "12 Mbit/s stays"),
        (usb_fact("stick", usable=False, reason="mounted at /"), "mounted at /"),
        (usb_fact("stick", speed=Speed.UNKNOWN), "no known speed"),
    ],
)
def test_facts_that_refuse(fact: UsbFact, text: str) -> None:
    with pytest.raises(Refused, match=text):
        planned(claim(result("usb", "usb-a", "stick")), {**FACTS, ("usb-a", "stick"): fact})


def test_what_stays_local_is_fine_locally() -> None:
    fact = usb_fact("mouse", "b", Speed.LOW, exportable=False, reason="1.5 Mbit/s stays local")
    record = planned(local_claim(), {**FACTS, ("usb-b", "mouse"): fact})
    assert record.devices[0].route is Route.DIRECT


def test_ports_of_another_node_are_not_ours() -> None:
    facts = {**FACTS, ("usblink-c", "vhci-high"): VhciFact(NodeName("c"), Hub.HIGH)}
    body = claim(
        result("usb", "usb-a", "stick"),
        result("link", "usblink-c", "vhci-high"),
        ties=[["usb", "link"]],
    )
    with pytest.raises(Refused, match="but vhci-high was allocated"):
        planned(body, facts)
