# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fakes.broker import KEYBOARD, STICK
from usbdra.controller.published import node_of, read_slice
from usbdra.errors import ConfigError
from usbdra.slices.build import Taint
from usbdra.slices.outside import HostOwner, build_outside, check_host, selector_of
from usbdra.types import DeviceName

GROUP = "example.com"
DRIVER = "usb.example.com"


def test_the_pool_is_one_that_no_node_can_have_and_every_importer_sees() -> None:
    (item,) = build_outside("pi", GROUP, [STICK], {})
    spec = item["spec"]
    assert spec["pool"] == {"name": "usb-outside/pi", "generation": 1, "resourceSliceCount": 1}
    assert spec["driver"] == DRIVER
    assert "nodeName" not in spec
    (term,) = spec["nodeSelector"]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["key"] == "example.com/usbip"
    assert item["metadata"]["name"].startswith("usbhost-pi-")
    assert node_of(spec["pool"]["name"]) == "outside/pi"


def test_a_device_says_of_itself_what_the_protocol_tells() -> None:
    (item,) = build_outside("pi", GROUP, [STICK], {})
    (device,) = read_slice(item, DRIVER).devices
    assert (device.name, device.node) == (STICK.name, "outside/pi")
    said = device.attributes
    assert said["vendorID"] == STICK.vendor_id
    assert said["serial"] == STICK.serial
    assert said["speedClass"] in ("high", "super")
    assert said["busID"] == STICK.busid


def test_what_no_slice_takes_is_left_out_and_costs_the_others_nothing() -> None:
    nameless = replace(STICK, name=None)
    twice = replace(KEYBOARD, name=STICK.name)
    odd = replace(KEYBOARD, name=DeviceName("Not a name"))
    (item,) = build_outside("pi", GROUP, [odd, nameless, twice, STICK], {})
    assert [one["name"] for one in item["spec"]["devices"]] == [STICK.name]
    assert build_outside("pi", GROUP, [nameless], {}) == []


def test_taints_and_the_order_of_devices_do_not_depend_on_the_hosts_answer() -> None:
    assert STICK.name is not None
    taints = {STICK.name: [Taint("example.com/unassigned", "")]}
    named = replace(KEYBOARD, name=DeviceName("a-keyboard"))
    one = build_outside("pi", GROUP, [STICK, named], taints)
    assert one == build_outside("pi", GROUP, [named, STICK], taints)
    found = {d["name"]: d.get("taints") for d in one[0]["spec"]["devices"]}
    assert found["a-keyboard"] is None
    assert found[STICK.name] == [{"key": "example.com/unassigned", "effect": "NoSchedule"}]


def test_slices_belong_to_the_hosts_object_and_are_found_by_its_name() -> None:
    owner = HostOwner("pi", "uid-1", DRIVER, "example.com/v1alpha2", "USBExporterHost")
    (item,) = (owner.own(one) for one in build_outside("pi", GROUP, [STICK], {}))
    (reference,) = item["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["name"], reference["uid"]) == (
        "USBExporterHost", "pi", "uid-1",
    )  # fmt: skip
    labels = item["metadata"]["labels"]
    assert ",".join(f"{k}={v}" for k, v in labels.items()) == selector_of("pi", DRIVER)


@pytest.mark.parametrize("name", ["", "Pi", "a.b", "outside/pi", "-a", "a" * 51])
def test_a_host_has_a_plain_name(name: str) -> None:
    with pytest.raises(ConfigError, match="not a host's name"):
        check_host(name)
    check_host("lab-pc-7")
