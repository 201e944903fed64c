# SPDX-License-Identifier: Apache-2.0
"""Devices that go away or change hands while a pod uses them."""

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
    stick.node.call("gadget.replug", stick.serial)
    (status,) = space.devices("stick")
    there = usb.machine("b").call("usb.find", stick.serial, True)
    assert status["data"]["busID"] == there["busid"]

    stick.node.call("gadget.unplug", stick.serial)
    faults.wait_not_ready(space, "stick", "LinkLost")
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
    """The kubelet of b is away when its pod is deleted by force: nobody calls Unprepare.

    The node that has the device ends the old session before it gives it away, and b cleans up by
    itself.
    """
    stick = gadgets.plug("a", "FORCED1")
    space.apply(disk_claim("old", stick.serial), reader("gone", "old", "b"))
    space.run("gone")
    uid = space.claim("old")["metadata"]["uid"]
    reading = Reading(usb, "b", space, "gone")
    reading.wait()
    with faults.no_kubelet(usb, "b"):
        space.delete("pod", "gone", "--force", "--grace-period=0")
        space.apply(disk_claim("new", stick.serial), reader("next", "new", "a"))
        space.run("next")
        usb.machine("b").call("usb.wait", stick.serial, True, gone=True)
        reading.wait("failed")
        faults.wait_forgotten(usb, "b", uid)
        Reading(usb, "a", space, "next").wait()
