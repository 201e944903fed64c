# SPDX-License-Identifier: Apache-2.0
"""Parts of the cluster that go away and come back while a pod uses a device of another node."""

from __future__ import annotations

import json
from contextlib import ExitStack

from tests.cluster import faults
from tests.cluster.bed import ClusterBed
from tests.cluster.driver import DRIVER
from tests.cluster.faults import Reading, disk_claim, reader
from tests.cluster.gadgets import Gadgets
from tests.cluster.space import Space


def test_r40_slices_deleted_and_kubelet_restarted_with_a_claim_prepared(
    usb: ClusterBed, gadgets: Gadgets, space: Space
) -> None:
    stick = gadgets.plug("a", "KUBELET1")
    space.apply(disk_claim("stick", stick.serial), reader("user", "stick", "b"))
    space.run("user")
    reading = Reading(usb, "b", space, "user")
    reading.wait()

    before = faults.slices(usb)
    usb.api.kubectl("delete", "resourceslice", *before)
    again = faults.wait_slices(usb, before)
    assert {n: s.spec.devices for n, s in again.items()} == {
        n: s.spec.devices for n, s in before.items()
    }

    with faults.no_kubelet(usb, "b"):
        reading.wait()
    space.delete("pod", "user")
    assert reading.failures() == []
    stick.at_home("disks")


def test_r44_node_rebooted_with_a_claim_prepared(
    usb: ClusterBed, gadgets: Gadgets, space: Space
) -> None:
    stick = gadgets.plug("a", "REBOOT1")
    stick.fill()
    user = reader("user", "stick", "b")
    user["spec"]["restartPolicy"] = "Always"
    space.apply(disk_claim("stick", stick.serial), user)
    space.run("user")
    uid = space.claim("stick")["metadata"]["uid"]

    found_by = _registration_sockets(usb, "b")
    usb.reboot("b")
    faults.wait_restarted(space, "user")
    assert found_by.isdisjoint(_registration_sockets(usb, "b"))  # the kubelet pauses for that one
    Reading(usb, "b", space, "user").wait()
    assert space.shell("user", f"sha256sum {faults.DISK}").split()[0] == stick.sha256()
    there = usb.machine("b").call("usb.find", stick.serial, True)
    path = f"/dev/bus/usb/{there['busnum']:03d}/{there['devnum']:03d}"
    (device,) = space.devices("stick")
    assert device["data"]["path"] == path
    assert path in _cdi_nodes(usb, "b", uid)
    assert len(usb.machine("b").call("usb.used")) == 1


def _registration_sockets(bed: ClusterBed, node: str) -> set[str]:
    return set(bed.machine(node).sh("ls /var/lib/kubelet/plugins_registry").split())


def _cdi_nodes(bed: ClusterBed, node: str, uid: str) -> list[str]:
    """Paths of the device nodes that a claim's CDI spec names."""
    spec = json.loads(bed.machine(node).read(f"/var/run/cdi/{DRIVER}_claim_{uid}.json"))
    edits = [device["containerEdits"] for device in spec["devices"]]
    return [entry["path"] for edit in edits for entry in edit.get("deviceNodes", ())]


def test_api_server_away_during_prepare(usb: ClusterBed, gadgets: Gadgets, space: Space) -> None:
    """The exporting agent is frozen while the other waits for its grant, so that it must ask an
    API server that is away who may have the device."""
    stick = gadgets.plug("a", "NOAPI1")
    objects = disk_claim("stick", stick.serial), reader("user", "stick", "b")
    with ExitStack() as away:
        with faults.frozen(usb, "a"):
            space.apply(*objects)
            uid = space.claim("stick")["metadata"]["uid"]
            faults.wait_recorded(usb, "b", uid)
            away.enter_context(faults.no_api_server(usb))
        faults.wait_forgotten(usb, "b", uid)
        assert usb.machine("b").call("usb.used") == []
    space.run("user")
    Reading(usb, "b", space, "user").wait()


def test_r55_r56_driver_removed_with_a_prepared_claim_and_installed_again(
    usb: ClusterBed, gadgets: Gadgets, space: Space
) -> None:
    used, wanted = gadgets.plug("a", "REMOVED1"), gadgets.plug("a", "REMOVED2")
    space.apply(disk_claim("used", used.serial), reader("user", "used", "b"))
    space.run("user")
    reading = Reading(usb, "b", space, "user")
    with faults.uninstalled(usb):
        # Slices outlive the plugin by 30 s, then the kubelet removes its node's.
        space.apply(disk_claim("wanted", wanted.serial), reader("late", "wanted", "b"))
        space.event("FailedPrepareDynamicResources", "late", DRIVER)
        reading.wait()
        assert reading.failures() == []
        space.delete("pod", "user", "--wait=false")
        faults.wait_no_reader(usb, "b")
        waiting = usb.api.core.read_namespaced_pod("user", space.name)
        assert waiting.metadata.deletion_timestamp is not None
    usb.api.wait_pod_gone("user", space.name)
    used.at_home("disks")
    space.run("late")
    Reading(usb, "b", space, "late").wait()
