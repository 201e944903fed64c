# SPDX-License-Identifier: Apache-2.0
"""Devices that go away or change hands while a pod uses them; agents that are upgraded."""

from __future__ import annotations

from tests.cluster import faults
from tests.cluster.bed import ClusterBed
from tests.cluster.faults import Reading, disk_claim, reader
from tests.cluster.gadgets import Gadgets
from tests.cluster.space import Space


def test_a_device_pulled_while_in_use_and_plugged_in_again(
    usb: ClusterBed, gadgets: Gadgets, space: Space
) -> None:
    stick = gadgets.plug("a", "PULLED1")
    name = gadgets.published(stick.serial)["device"]
    space.apply(disk_claim("stick", stick.serial), reader("user", "stick", "b"))
    space.run("user")
    reading = Reading(usb, "b", space, "user")
    reading.wait()

    stick.node.call("gadget.unplug", stick.serial)
    reading.wait("failed")
    faults.wait_not_ready(space, "stick", "LinkLost")
    space.event("LinkLost", "stick", name)
    space.delete("pod", "user")
    space.delete("resourceclaim", "stick")

    stick.node.call("gadget.replug", stick.serial)
    stick.at_home("disks")
    gadgets.published(stick.serial)
    space.apply(disk_claim("again", stick.serial), reader("next", "again", "b"))
    space.run("next")
    Reading(usb, "b", space, "next").wait()


def test_r47_r48_a_dead_node_does_not_keep_what_another_pod_was_given(
    usb: ClusterBed, gadgets: Gadgets, space: Space
) -> None:
    """The kubelet of b is away when its pod is deleted by force: nobody calls Unprepare."""
    stick = gadgets.plug("a", "FORCED1")
    space.apply(disk_claim("old", stick.serial), reader("gone", "old", "b"))
    space.run("gone")
    reading = Reading(usb, "b", space, "gone")
    reading.wait()
    with faults.no_kubelet(usb, "b"):
        space.delete("pod", "gone", "--force", "--grace-period=0")
        space.apply(disk_claim("new", stick.serial), reader("next", "new", "a"))
        space.run("next")
        usb.machine("b").call("usb.wait_used", 0)
        assert reading.wait("failed")
        Reading(usb, "a", space, "next").wait()


def test_r42_an_upgrade_goes_by_unnoticed(usb: ClusterBed, gadgets: Gadgets, space: Space) -> None:
    stick = gadgets.plug("a", "UPGRADE1")
    space.apply(disk_claim("stick", stick.serial), reader("user", "stick", "b"))
    space.run("user")
    reading = Reading(usb, "b", space, "user")
    reading.wait()
    agents = {name: faults.agent_pid(usb, name) for name in usb.nodes}
    slices = {name: item.metadata.uid for name, item in faults.slices(usb).items()}

    faults.upgrade(usb)
    assert not agents.items() & {name: faults.agent_pid(usb, name) for name in usb.nodes}.items()
    assert slices == {name: item.metadata.uid for name, item in faults.slices(usb).items()}
    reading.wait()
    assert reading.failures() == []
    space.delete("pod", "user")
    stick.at_home("disks")
