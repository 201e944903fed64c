# SPDX-License-Identifier: Apache-2.0
"""USBDeviceConfig on real kubelets: what a container finds is what its claim has asked for."""

from __future__ import annotations

from tests.cluster.bed import ClusterBed
from tests.cluster.claims import consumer, echo, serial, usb_claim
from tests.cluster.gadgets import Gadgets
from tests.cluster.space import Space


def test_owner_mode_children_and_prefix_are_as_asked_for(gadgets: Gadgets, space: Space) -> None:
    gadgets.plug("a", "PARAM001", kind="serial")
    gadgets.plug("a", "PARAM002", kind="keyboard", speed="high")
    owner = {"uid": 1000, "gid": 2000, "mode": "0640"}
    other = {"uid": 4711, "gid": 4711}
    space.apply(
        usb_claim("adapter", serial("PARAM001"), owner=owner, envPrefix="ADAPTER"),
        usb_claim("keys", serial("PARAM002"), owner=other, childNodes=["input"]),
        consumer("adapter", "adapter", node="b"),
        consumer("keys", "keys", node="b"),
    )
    space.run("adapter")
    listed = space.shell("adapter", "stat -c '%u %g %a' $ADAPTER_NODE $(readlink $ADAPTER_TTY0)")
    assert listed.splitlines() == ["1000 2000 640"] * 2
    assert space.shell("adapter", "ls $ADAPTER_DIR").split() == ["device", "tty0"]
    # 0640 and the owner's uid: the pod's user reads and writes
    assert space.shell("adapter", echo("$ADAPTER_TTY0")) == "hello"

    space.run("keys")
    # an input node and no hidraw node, and an owner that is not the pod's user
    assert space.shell("keys", "ls /dev/usbdra/usb").split() == ["device", "input0"]
    assert space.shell("keys", "stat -c %u $USBDRA_USB_NODE") == "4711"
    reading = "head -c 1 $USBDRA_USB_NODE >/dev/null 2>&1 || echo refused"
    assert space.shell("keys", reading) == "refused"


def test_r67_no_host_driver_takes_a_device_that_is_for_a_vm(
    usb: ClusterBed, gadgets: Gadgets, space: Space
) -> None:
    stick = gadgets.plug("a", "PARAM003")
    fields = {"driver": "none", "owner": {"uid": 1000}}
    for node, imported in (("b", True), ("a", False)):
        space.apply(
            usb_claim("raw", serial("PARAM003"), **fields), consumer("vm", "raw", node=node)
        )
        space.run("vm")
        facts = usb.machine(node).call("usb.find", "PARAM003", imported)
        assert set(facts["interfaces"].values()) == {None}
        assert facts["disks"] == []
        assert space.shell("vm", "ls /dev/usbdra/usb") == "device"
        assert space.shell("vm", "head -c 2 $USBDRA_USB_NODE | od -An -tx1") == "12 01"
        space.delete("pod", "vm")
        space.delete("resourceclaim", "raw")
        assert stick.at_home("disks")["driver"] == "usb"


def test_r63_a_parameter_that_is_not_known_is_named_and_nothing_is_touched(
    usb: ClusterBed, gadgets: Gadgets, space: Space
) -> None:
    stick = gadgets.plug("a", "PARAM004")
    for field, value, name in (("ownr", {"uid": 1}, "ownr"), ("owner", {"uid": -1}, "uid")):
        bad = f"bad-{name}"
        space.apply(
            usb_claim(bad, serial("PARAM004"), **{field: value}), consumer(bad, bad, node="b")
        )
        space.event("BadConfig", bad, name)
        space.event("FailedPrepareDynamicResources", bad, name)
        assert usb.machine("b").call("usb.used") == []
        assert stick.at_home("disks")["driver"] == "usb"
        space.delete("pod", bad)
        space.delete("resourceclaim", bad)
