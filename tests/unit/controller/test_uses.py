# SPDX-License-Identifier: Apache-2.0
"""Uses read from claims, in every form a claim has."""

from __future__ import annotations

from typing import Any

from tests.unit.controller.make import DRIVER, STICK, claim
from usbdra.controller.uses import Consumer, Use, consumers, uses
from usbdra.types import NodeName

PORT = {"request": "usb/remote", "driver": DRIVER, "pool": "usblink-b", "device": "vhci-high"}


def named(target: dict[str, str], requests: list[str]) -> dict[str, Any]:
    """A claim for a port, whose parameters name the device."""
    parameters = {"kind": "USBDeviceConfig", "device": target}
    opaque = {"driver": DRIVER, "parameters": parameters}
    found = claim("lab", "c", pods=("p",))
    found["status"]["allocation"]["devices"] = {
        "results": [PORT],
        "config": [{"requests": requests, "opaque": opaque}],
    }
    return found


def test_a_claim_that_is_not_allocated_uses_nothing() -> None:
    assert uses({"metadata": {"namespace": "lab", "name": "c"}}, DRIVER) == ()
    assert uses(claim("lab", "c"), "usb.example.com") == ()


def test_a_device_with_what_its_agent_reported() -> None:
    found = claim("lab", "c", pods=("q", "p"), ready=False, reason="LinkLost")
    pods = (Consumer("p", "uid-p"), Consumer("q", "uid-q"))
    assert uses(found, DRIVER) == (
        Use(STICK, NodeName("a"), "lab", "c", pods, False, "LinkLost", "as said"),
    )


def test_a_port_stands_for_the_device_its_parameters_name() -> None:
    target = {"name": STICK, "node": "a"}
    for requests in (["usb"], ["usb/remote"], []):
        (use,) = uses(named(target, requests), DRIVER)
        assert (use.device, use.node, use.ready) == (STICK, "a", None)
    assert uses(named(target, ["other"]), DRIVER) == ()


def test_admin_access_looks_on_and_uses_nothing() -> None:
    found = claim("lab", "c")
    found["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
    assert uses(found, DRIVER) == ()


def test_consumers_are_pods_only() -> None:
    found = claim("lab", "c", pods=("p",))
    other = {"apiGroup": "batch", "resource": "jobs", "name": "j", "uid": "u"}
    found["status"]["reservedFor"].append(other)
    assert consumers(found) == (Consumer("p", "uid-p"),)
