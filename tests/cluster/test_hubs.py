# SPDX-License-Identifier: Apache-2.0
"""Hubs with one port each: what waits, what does not, and who is told.

The installation is also the plain one: agents listen themselves, certificates are an
administrator's files.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import driver
from tests.cluster.bed import ClusterBed
from tests.cluster.claims import claim, consumer, requests, serial, usb_claim
from tests.cluster.gadgets import Gadgets
from tests.cluster.space import Space

VALUES = {
    "agent.maxPorts": "1",
    "agent.certificates.mode": "Files",
    "exporter.mode": "inprocess",
    "exporter.encryption": "Allowed",
}


@pytest.fixture(scope="module", autouse=True)
def one_port(usb: ClusterBed) -> Iterator[None]:
    """Every hub of every node offers one port to claims."""
    driver.certify(usb)
    with driver.configured(usb, VALUES):
        yield


def test_r03_a_full_hub_lets_pods_wait_and_the_other_hub_does_not_help(
    usb: ClusterBed, gadgets: Gadgets, space: Space
) -> None:
    for number, speed in enumerate(("high", "high", "super", "super"), 1):
        gadgets.plug("a", f"HUB0000{number}", speed=speed)
        space.apply(usb_claim(f"c{number}", serial(f"HUB0000{number}")))

    def start(*numbers: int) -> None:
        space.apply(*(consumer(f"p{n}", f"c{n}", node="b") for n in numbers))

    def used() -> list[str]:
        return sorted(row["hub"] for row in usb.machine("b").call("usb.used"))

    start(1)
    space.run("p1")
    start(2)  # its hub is full, the other one is empty
    space.pending("p2")
    assert used() == ["hs"]
    start(3)
    space.run("p3")
    start(4)
    space.pending("p4")
    assert used() == ["hs", "ss"]
    space.delete("pod", "p3", "--wait=false")
    space.run("p4")  # the freed port of the right hub goes to the one that needs it
    assert space.phase("p2") == "Pending"
    space.delete("pod", "p1", "--wait=false")
    space.run("p2")
    assert used() == ["hs", "ss"]
    # on the devices' own node nothing is counted: full hubs elsewhere are no matter
    space.apply(*(consumer(f"at-home-{n}", f"c{n}") for n in (1, 3)))
    assert {space.run(f"at-home-{n}").spec.node_name for n in (1, 3)} == {"a"}


def test_a_device_alone_takes_a_port_by_itself_or_says_that_there_is_none(
    usb: ClusterBed, gadgets: Gadgets, space: Space
) -> None:
    for number in (5, 6):
        gadgets.plug("a", f"HUB0000{number}")
        alone = requests(serial(f"HUB0000{number}"))[:1]
        space.apply(claim(f"c{number}", alone))
    space.apply(consumer("p5", "c5", node="b"))
    space.run("p5")
    assert set(space.results("c5")) == {"usb"}
    space.apply(consumer("p6", "c6", node="b"))
    space.event("NoFreeUSBIPPort", "c6", "no high-speed port free on b: 1 of 1 in use")
    space.event("FailedPrepareDynamicResources", "p6", "no high-speed port free on b")
    assert len(usb.machine("b").call("usb.used")) == 1
    # the scheduler has heard of the port that it did not give away
    gadgets.plug("a", "HUB00007")
    space.apply(usb_claim("c7", serial("HUB00007")), consumer("p7", "c7", node="b"))
    space.pending("p7")
    space.delete("pod", "p7")
    space.delete("pod", "p5", "--wait=false")
    space.run("p6")  # the kubelet tries again by itself
    assert len(usb.machine("b").call("usb.used")) == 1
