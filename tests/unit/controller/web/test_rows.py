# SPDX-License-Identifier: Apache-2.0
"""Rows say of each object what the page needs."""

from __future__ import annotations

from tests.unit.cli.kubectl.test_links import linked
from tests.unit.controller.make import DRIVER, STICK, claim
from tests.unit.controller.web.conftest import stick
from tests.unit.slices.samples import offer
from usbdra.controller.web import rows
from usbdra.slices.build import SliceOptions, build
from usbdra.types import Hub


def test_a_device() -> None:
    found = rows.device(stick(namespace="lab"))
    assert found == {
        "node": "a",
        "namespace": "lab",
        "is": {"name": STICK, "product": "DataTraveler 3.0"},
        "states": {"Ready": {"status": "True", "reason": "Ready", "message": "plugged in"}},
    }
    assert rows.device({"metadata": {"name": "new"}}) == {
        "node": "", "namespace": "", "is": {}, "states": {},
    }  # fmt: skip


def test_slices_say_which_ports_there_are_and_where_devices_are_plugged_in() -> None:
    devices, links = build([offer()], {Hub.HIGH: 8, Hub.SUPER: 4}, SliceOptions(node="n1"))
    assert rows.published(devices, DRIVER) == {
        "node": "n1",
        "devices": {
            "usb-0951-1666-60a44c413fae": {
                "busID": "1-1.4", "portPath": "pci-0000:00:14.0-usb2.0-1.4", "speed": 480,
            }
        },
    }  # fmt: skip
    assert rows.published(links, DRIVER) == {"node": "n1", "hubs": {"high": 8, "super": 4}}
    devices["spec"]["pool"]["name"] = "of-somebody-else"
    assert rows.published(devices, DRIVER) is None


def test_a_claim_says_what_it_has_where_and_what_its_link_does() -> None:
    item = linked("c", 5, 7)
    item["status"]["allocation"]["devices"]["results"].append(
        {"request": "link/vhci", "driver": DRIVER, "pool": "usblink-b", "device": "vhci-high"}
    )
    found = rows.claim(item, DRIVER)
    assert found is not None
    assert (found["node"], found["ports"]) == ("b", [["b", "high"]])
    (link,) = found["links"]
    assert (link["receivedBytesPerSecond"], link["from"], link["to"]) == (7, "a", "b")
    assert found["uses"] == [
        {"device": STICK, "node": "a", "state": "Attached", "message": "as said", "pods": ["p"]}
    ]
    assert rows.claim(claim("lab", "c"), "usb.other.example") is None
    fresh = rows.claim(claim("lab", "c"), DRIVER)
    assert fresh is not None
    assert fresh["uses"][0]["state"] == "Allocated"


def test_a_namespace_that_goes_can_be_given_nothing() -> None:
    assert rows.namespace({"metadata": {"name": "lab"}}) == {}
    gone = {"metadata": {"name": "lab", "deletionTimestamp": "2026-01-31T12:00:00Z"}}
    assert rows.namespace(gone) is None
