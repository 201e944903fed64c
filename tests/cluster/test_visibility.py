# SPDX-License-Identifier: Apache-2.0
"""Devices that only their own node sees: a claim names its device and works on every node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster import driver
from tests.cluster.bed import ClusterBed
from tests.cluster.claims import VHCI, attribute, claim, consumer, device, parameters, serial
from tests.cluster.gadgets import Gadgets
from tests.cluster.space import Space


@pytest.fixture(scope="module", autouse=True)
def node_visible(usb: ClusterBed) -> Iterator[None]:
    """Slices of each node for this node alone."""
    with driver.configured(usb, {"agent.visibility": "Node"}):
        yield


def named(text: str, published: dict[str, Any]) -> dict[str, Any]:
    """A claim for one device: on its node as itself, elsewhere as a port that it comes to."""
    choices = [
        {"name": "local", **device(serial(text))},
        {
            "name": "remote",
            "deviceClassName": VHCI,
            "selectors": [{"cel": {"expression": attribute("speedClass", "high")}}],
        },
    ]
    target = {"name": published["name"], "node": published["node"]}
    config = [parameters(["usb"], device=target, owner={"uid": 1000})]
    return claim("named", [{"name": "usb", "firstAvailable": choices}], config=config)


def test_a_claim_that_names_its_device_works_on_both_nodes(
    usb: ClusterBed, gadgets: Gadgets, space: Space
) -> None:
    gadgets.plug("a", "NODE0001")
    published = gadgets.published("NODE0001")
    pools = usb.api.resource.list_resource_slice().items
    assert {s.spec.node_name for s in pools} == {"a", "b"}
    space.apply(named("NODE0001", published))
    for node, route in (("b", "usb/remote"), ("a", "usb/local")):
        space.apply(consumer("user", "named", node=node))
        space.run("user")
        assert set(space.results("named")) == {route}
        assert len(usb.machine("b").call("usb.used")) == (1 if node == "b" else 0)
        assert space.shell("user", "echo $USBDRA_USB_SERIAL") == "NODE0001"
        assert space.shell("user", "head -c 2 $USBDRA_USB_DEVICE | od -An -tx1") == "12 01"
        space.delete("pod", "user")
