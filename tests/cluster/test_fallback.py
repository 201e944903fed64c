# SPDX-License-Identifier: Apache-2.0
"""A control plane without consumable capacity (R52): each port is a device, claims are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cluster import driver, faults
from tests.cluster.bed import ClusterBed
from tests.cluster.claims import consumer, serial, usb_claim
from tests.cluster.gadgets import Gadgets
from tests.cluster.space import Space

GATES = {"DRAConsumableCapacity": False}


def test_r52_a_server_without_consumable_capacity_gives_ports_one_by_one(
    usb: ClusterBed, gadgets: Gadgets, space: Space
) -> None:
    gadgets.plug("a", "PORTS001")
    try:
        with usb.plane.regated(GATES):
            # The agent learns by its first write what is not kept: hubs are there until then.
            published_anew(usb, lambda device: device.name.rpartition("-")[2].isdigit())
            space.apply(usb_claim("stick", serial("PORTS001")), consumer("user", "stick", node="b"))
            space.run("user")
            port = space.results("stick")["usb-link/vhci"]["device"]
            assert port.startswith("vhci-high-")
            assert space.shell("user", "head -c 2 /dev/usbdra/usb/device | od -An -tx1") == "12 01"
            assert len(usb.machine("b").call("usb.used")) == 1
            space.delete("pod", "user")
            space.delete("resourceclaim", "stick")
    finally:
        # What a server does not keep is remembered as long as the agent lives.
        usb.api.kubectl("rollout", "restart", *faults.DAEMON_SET)
        driver.ready(usb)
        published_anew(usb, lambda device: bool(device.allow_multiple_allocations))


def published_anew(bed: ClusterBed, link: Callable[[Any], bool]) -> None:
    """Delete our slices (a server keeps fields that it stored before) and wait for links so."""
    bed.api.kubectl("delete", "resourceslice", f"--field-selector=spec.driver={driver.DRIVER}")

    def done(slices: list[Any]) -> bool | None:
        pools = {item.spec.pool.name: item.spec.devices or [] for item in slices}
        links = [pools.get(f"usblink-{name}") for name in bed.nodes]
        return all(found and all(map(link, found)) for found in links) or None

    bed.api.wait(
        bed.api.resource.list_resource_slice,
        done,
        "links in the other form",
        field_selector=f"spec.driver={driver.DRIVER}",
    )
