# SPDX-License-Identifier: Apache-2.0
"""Offers and ports to ResourceSlices: exact shapes, and properties over any input."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.searching import examples
from tests.unit.slices.api_limits import problems
from tests.unit.slices.samples import device, offer
from usbdra.errors import ConfigError
from usbdra.slices.attributes import attributes, node_value
from usbdra.slices.build import (
    Layout,
    SliceOptions,
    Taint,
    Visibility,
    build,
)
from usbdra.types import DeviceName, Hub, Offer, Speed, UsbInterface

PORTS = {Hub.HIGH: 8, Hub.SUPER: 8}
DRIVER = "usb.virtualization.deckhouse.io"


def spec_of(slices: list[dict[str, Any]], pool: str) -> dict[str, Any]:
    (found,) = [s["spec"] for s in slices if s["spec"]["pool"]["name"] == pool]
    return dict(found)


def device_names(slices: list[dict[str, Any]], pool: str) -> list[str]:
    specs = [s["spec"] for s in slices if s["spec"]["pool"]["name"] == pool]
    return [d["name"] for s in specs for d in s["devices"]]


def test_devices_pool_seen_by_the_cluster() -> None:
    slices = build([offer()], PORTS, SliceOptions(node="node-a"))
    assert slices[0] == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": slices[0]["metadata"]["name"]},
        "spec": {
            "driver": DRIVER,
            "pool": {"name": "usb-node-a", "generation": 1, "resourceSliceCount": 1},
            "nodeSelector": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {
                                "key": "virtualization.deckhouse.io/usbip",
                                "operator": "In",
                                "values": ["true"],
                            }
                        ]
                    }
                ]
            },
            "devices": [
                {
                    "name": "usb-0951-1666-60a44c413fae",
                    "attributes": {
                        "kind": {"string": "usb"},
                        "name": {"string": "usb-0951-1666-60a44c413fae"},
                        "node": {"string": "node-a"},
                        "vendorID": {"string": "0951"},
                        "productID": {"string": "1666"},
                        "bcd": {"string": "0110"},
                        "manufacturer": {"string": "Kingston"},
                        "product": {"string": "DataTraveler 3.0"},
                        "serial": {"string": "60A44C413FAE"},
                        "bus": {"int": 1},
                        "deviceNumber": {"int": 5},
                        "busID": {"string": "1-1.4"},
                        "portPath": {"string": "pci-0000:00:14.0-usb2.0-1.4"},
                        "speed": {"int": 480},
                        "speedClass": {"string": "high"},
                        "class": {"string": "00"},
                        "interfaceClasses": {"string": "08"},
                        "isochronous": {"bool": False},
                    },
                }
            ],
        },
    }


def test_links_pool_with_hub_capacity() -> None:
    slices = build([], {Hub.HIGH: 8, Hub.SUPER: 3}, SliceOptions(node="node-a"))
    policy = {"default": "1", "validRange": {"min": "1", "max": "1"}}
    assert [s["spec"] for s in slices] == [
        {
            "driver": DRIVER,
            "pool": {"name": "usblink-node-a", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "node-a",
            "devices": [
                {
                    "name": "direct",
                    "allowMultipleAllocations": True,
                    "attributes": {"kind": {"string": "direct"}, "node": {"string": "node-a"}},
                },
                {
                    "name": "vhci-high",
                    "allowMultipleAllocations": True,
                    "attributes": {"kind": {"string": "vhci"}, "speedClass": {"string": "high"}},
                    "capacity": {"ports": {"value": "8", "requestPolicy": policy}},
                },
                {
                    "name": "vhci-super",
                    "allowMultipleAllocations": True,
                    "attributes": {"kind": {"string": "vhci"}, "speedClass": {"string": "super"}},
                    "capacity": {"ports": {"value": "3", "requestPolicy": policy}},
                },
            ],
        }
    ]


def test_hub_without_free_ports_is_left_out() -> None:
    slices = build([], {Hub.HIGH: 0, Hub.SUPER: 1}, SliceOptions(node="a"))
    assert device_names(slices, "usblink-a") == ["direct", "vhci-super"]
    assert problems(slices) == []


def test_layout_of_one_device_per_port() -> None:
    options = SliceOptions(node="a", layout=Layout.PORTS)
    offers = [offer("usb-x"), offer("usb-y", exportable=False)]
    slices = build(offers, {Hub.HIGH: 2, Hub.SUPER: 1}, options)
    assert spec_of(slices, "usblink-a")["devices"] == [
        *(
            {
                "name": name,
                "attributes": {"kind": {"string": "direct"}, "node": {"string": "a"}},
            }
            for name in ("direct-0", "direct-1")
        ),
        *(
            {
                "name": name,
                "attributes": {"kind": {"string": "vhci"}, "speedClass": {"string": hub}},
            }
            for name, hub in [
                ("vhci-high-0", "high"),
                ("vhci-high-1", "high"),
                ("vhci-super-0", "super"),
            ]
        ),
    ]


def test_node_visibility_uses_node_name_and_one_pool() -> None:
    options = SliceOptions(node="a", visibility=Visibility.NODE)
    mouse = offer("usb-mouse", exportable=False, reason="12 Mbit/s", speed=Speed.FULL)
    slices = build([offer("usb-stick"), mouse], PORTS, options)
    assert spec_of(slices, "usb-a")["nodeName"] == "a"
    assert "nodeSelector" not in spec_of(slices, "usb-a")
    assert device_names(slices, "usb-a") == ["usb-mouse", "usb-stick"]


def test_low_speed_devices_stay_in_their_own_local_pool() -> None:
    mouse = offer("usb-mouse", exportable=False, reason="1.5 Mbit/s", speed=Speed.LOW)
    slices = build([offer("usb-stick"), mouse], PORTS, SliceOptions(node="a"))
    assert device_names(slices, "usb-a") == ["usb-stick"]
    local = spec_of(slices, "usblocal-a")
    assert local["nodeName"] == "a"
    assert local["devices"][0]["attributes"]["speedClass"] == {"string": "low"}
    assert local["devices"][0]["attributes"]["speed"] == {"int": 1}


@pytest.mark.parametrize("speed", [Speed.LOW, Speed.FULL])
def test_forwarded_low_speed_device_asks_for_the_hub_it_lands_on(speed: Speed) -> None:
    slices = build([offer(speed=speed)], PORTS, SliceOptions(node="a"))
    wanted = spec_of(slices, "usb-a")["devices"][0]["attributes"]["speedClass"]
    hubs = [d["attributes"].get("speedClass") for d in spec_of(slices, "usblink-a")["devices"]]
    assert wanted == {"string": "high"}
    assert wanted in hubs


def test_unusable_devices_are_not_published() -> None:
    disk = offer("usb-root", usable=False, exportable=False, reason="mounted at /")
    assert device_names(build([disk], PORTS, SliceOptions(node="a")), "usb-a") == []


def test_empty_and_unknown_attributes_are_dropped() -> None:
    bare = offer(manufacturer=None, product="", serial=" \x01 ", speed=Speed.UNKNOWN, interfaces=())
    assert set(attributes(bare, "a")) == {
        "kind", "name", "node", "vendorID", "productID", "bcd", "bus", "deviceNumber", "busID",
        "portPath", "class", "isochronous",
    }  # fmt: skip


def test_r36_one_odd_device_costs_the_others_nothing() -> None:
    odd = offer("usb-odd", product="P" * 67, manufacturer="\udcff\x00", serial="漢" * 126)
    slices = build([odd, offer("Not_A_Label"), offer("usb-good")], PORTS, SliceOptions(node="a"))
    assert device_names(slices, "usb-a") == ["usb-good", "usb-odd"]
    values = spec_of(slices, "usb-a")["devices"][1]["attributes"]
    assert values["product"] == {"string": "P" * 64}
    assert "manufacturer" not in values
    assert problems(slices) == []


def test_one_name_twice_is_published_once() -> None:
    slices = build([offer("usb-x", busid="1-2"), offer("usb-x", busid="1-1")], PORTS,
                   SliceOptions(node="a"))  # fmt: skip
    (entry,) = spec_of(slices, "usb-a")["devices"]
    assert entry["attributes"]["busID"] == {"string": "1-1"}


def many(count: int) -> list[Offer]:
    return [offer(f"usb-{n:03d}", busid=f"1-{n}") for n in range(count)]


def test_r54_129_devices_make_two_slices() -> None:
    slices = build(many(129), PORTS, SliceOptions(node="a"))
    parts = [s["spec"] for s in slices if s["spec"]["pool"]["name"] == "usb-a"]
    assert [len(p["devices"]) for p in parts] == [128, 1]
    assert {p["pool"]["resourceSliceCount"] for p in parts} == {2}
    assert problems(slices) == []


def test_r54_65_devices_with_a_taint_make_two_slices() -> None:
    taint = Taint("virtualization.deckhouse.io/assigned", "lab")
    options = SliceOptions(node="a", taints={DeviceName("usb-007"): [taint]})
    slices = build(many(65), PORTS, options)
    parts = [s["spec"] for s in slices if s["spec"]["pool"]["name"] == "usb-a"]
    assert [len(p["devices"]) for p in parts] == [64, 1]
    assert parts[0]["devices"][7]["taints"] == [
        {"key": "virtualization.deckhouse.io/assigned", "value": "lab", "effect": "NoSchedule"}
    ]
    assert problems(slices) == []


def test_r54_240_ports_as_devices_make_two_slices() -> None:
    options = SliceOptions(node="a", layout=Layout.PORTS)
    slices = build([], {Hub.HIGH: 120, Hub.SUPER: 120}, options)
    assert [len(s["spec"]["devices"]) for s in slices] == [128, 112]
    assert problems(slices) == []


def test_order_does_not_depend_on_the_order_of_discovery() -> None:
    offers = many(10)
    options = SliceOptions(node="a")
    forward, backward = build(offers, PORTS, options), build(offers[::-1], PORTS, options)
    assert json.dumps(forward) == json.dumps(backward)
    names = [s["metadata"]["name"] for s in forward]
    assert names == sorted(names)


def test_pool_names_of_two_nodes_never_meet() -> None:
    nodes = ["a", "link-a", "local-a", "usb-a"]
    pools = [
        {s["spec"]["pool"]["name"] for s in build([offer()], PORTS, SliceOptions(node=n))}
        for n in nodes
    ]
    assert len(set.union(*pools)) == sum(map(len, pools))


def test_group_is_one_setting() -> None:
    slices = build([offer()], PORTS, SliceOptions(node="a", group="usb.example.com"))
    assert {s["spec"]["driver"] for s in slices} == {"usb.usb.example.com"}
    term = slices[0]["spec"]["nodeSelector"]["nodeSelectorTerms"][0]["matchExpressions"][0]
    assert term["key"] == "usb.example.com/usbip"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"node": "Node_A"}, "Node_A"),
        ({"node": ""}, "node name ''"),
        ({"node": "n" * 250}, "not a Kubernetes node name"),
        ({"node": "a", "group": "Not A Group"}, "Not A Group"),
        ({"node": "a", "group": "g" * 60}, "at most 59 characters"),
    ],
)
def test_bad_names_are_refused_with_their_text(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        SliceOptions(**changes)


def test_long_node_names_keep_apart_as_values() -> None:
    first, second = f"{'n' * 70}.a", f"{'n' * 70}.b"
    assert node_value(first) != node_value(second)
    assert len(node_value(first)) == 64
    assert node_value("node-a") == "node-a"


ANY_TEXT = st.text(alphabet=st.characters(), max_size=140)
LABELS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True)
OFFERS = st.builds(
    Offer,
    name=st.one_of(LABELS, st.text(max_size=70)).map(DeviceName),
    device=st.builds(
        device,
        manufacturer=ANY_TEXT,
        product=st.none() | ANY_TEXT,
        serial=st.none() | ANY_TEXT,
        port_path=ANY_TEXT,
        speed=st.sampled_from(Speed),
        class_code=st.integers(0, 255),
        interfaces=st.lists(
            st.builds(UsbInterface, *[st.integers(0, 255)] * 4, st.none()), max_size=32
        ).map(tuple),
        isochronous=st.booleans(),
    ),
    usable=st.booleans(),
    exportable=st.booleans(),
    reason=st.just(""),
)


@settings(max_examples=examples(150))
@given(
    offers=st.lists(OFFERS, max_size=12),
    copies=st.integers(1, 12),
    high=st.integers(0, 200),
    fast=st.integers(0, 200),
    node=st.from_regex(
        r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]{1,60}){0,2}", fullmatch=True
    ),
    visibility=st.sampled_from(Visibility),
    layout=st.sampled_from(Layout),
    tainted=st.booleans(),
)
def test_the_api_server_takes_every_output(
    offers: list[Offer],
    copies: int,
    high: int,
    fast: int,
    node: str,
    visibility: Visibility,
    layout: Layout,
    tainted: bool,
) -> None:
    crowd = [
        Offer(DeviceName(f"d{n}-{o.name}"[:63]), o.device, o.usable, o.exportable, o.reason)
        for o in offers
        for n in range(copies)
    ]
    taints = {o.name: [Taint("example.com/assigned", "lab")] for o in crowd[:1] if tainted}
    options = SliceOptions(node=node, visibility=visibility, layout=layout, taints=taints)
    slices = build(offers + crowd, {Hub.HIGH: high, Hub.SUPER: fast}, options)
    assert problems(slices) == []
    json.dumps(slices).encode()
