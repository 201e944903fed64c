# SPDX-License-Identifier: Apache-2.0
"""Claims of pods on real kubelets: where pods land, what they find, what is said about it."""

from __future__ import annotations

from tests.cluster.bed import ClusterBed
from tests.cluster.claims import (
    attribute,
    claim,
    consumer,
    device,
    echo,
    link,
    parameters,
    requests,
    serial,
    ties,
    usb_claim,
)
from tests.cluster.gadgets import Gadgets
from tests.cluster.space import Space

DISK = "/dev/usbdra/usb/block0"


def test_a_pod_on_b_uses_the_stick_in_a_byte_by_byte(
    usb: ClusterBed, gadgets: Gadgets, space: Space
) -> None:
    stick = gadgets.plug("a", "CLAIM001", size_mib=4)
    stick.fill()
    space.apply(
        usb_claim("stick", serial("CLAIM001"), childNodes=["block"], owner={"uid": 1000}),
        consumer("reader", "stick", node="b"),
    )
    assert space.run("reader").spec.node_name == "b"
    assert space.shell("reader", f"sha256sum {DISK}").split()[0] == stick.sha256()
    space.shell("reader", f"printf 'from the pod' | dd of={DISK} bs=512 conv=notrunc,fsync")
    assert stick.node.sh(f"head -c 12 {stick.medium}") == "from the pod"

    here = usb.machine("b").call("usb.find", "CLAIM001", True)
    (port,) = usb.machine("b").call("usb.used")
    (status,) = space.devices("stick")
    published = gadgets.published("CLAIM001")
    assert (status["driver"], status["pool"], status["device"]) == (
        "usb.virtualization.deckhouse.io",
        published["pool"],
        published["device"],
    )
    status["data"].pop("link", None)  # what it carried, once a minute has passed
    assert status["data"] == {
        "name": published["name"],
        "node": "a",
        "usedOn": "b",
        "serial": "CLAIM001",
        "vendorID": "1d6b",
        "productID": "0104",
        "busID": here["busid"],
        "bus": here["busnum"],
        "deviceNumber": here["devnum"],
        "path": f"/dev/bus/usb/{here['busnum']:03}/{here['devnum']:03}",
        "port": port["port"],
        "childNodes": [f"/dev/{disk}" for disk in here["disks"]],
    }
    assert "CLAIM001" in space.event("Attached", "stick").upper()
    space.event("Attached", "reader")

    space.delete("pod", "reader")
    space.event("Detached", "stick")
    assert stick.at_home("disks")["driver"] == "usb"
    assert usb.machine("b").call("usb.used") == []
    assert space.devices("stick", 0) == []


def test_without_a_preference_a_pod_lands_where_the_stick_is(
    usb: ClusterBed, gadgets: Gadgets, space: Space
) -> None:
    gadgets.plug("b", "CLAIM002", speed="super")
    space.apply(usb_claim("stick", serial("CLAIM002")), consumer("reader", "stick"))
    assert space.run("reader").spec.node_name == "b"
    assert set(space.results("stick")) == {"usb", "usb-link/direct"}
    for machine in usb.bed.nodes.values():
        assert machine.call("usb.used") == []
    (status,) = space.devices("stick")
    assert "port" not in status["data"]
    # block nodes are by opt-in
    assert space.shell("reader", "ls /dev/usbdra/usb") == "device"


def test_two_claims_of_one_device_are_served_one_after_the_other(
    gadgets: Gadgets, space: Space
) -> None:
    gadgets.plug("a", "CLAIM003")
    first = usb_claim("first", serial("CLAIM003"))
    second = usb_claim("second", serial("CLAIM003"))
    space.apply(first, consumer("one", "first", node="b"))
    space.run("one")
    space.apply(second, consumer("two", "second", node="a"))
    assert "cannot allocate all claims" in space.pending("two")
    space.delete("pod", "one", "--wait=false")
    space.run("two")
    assert space.shell("two", "test -c $USBDRA_USB_DEVICE && echo yes") == "yes"


def test_one_claim_serves_two_pods_of_a_node_until_the_last_ends(
    usb: ClusterBed, gadgets: Gadgets, space: Space
) -> None:
    gadgets.plug("a", "CLAIM004")
    space.apply(
        usb_claim("shared", serial("CLAIM004")),
        consumer("one", "shared", node="b"),
    )
    space.run("one")
    # allocated for b: the second pod goes there without being told
    space.apply(consumer("two", "shared"))
    assert space.run("two").spec.node_name == "b"
    nodes = {space.shell(pod, "readlink -f /dev/usbdra/usb/device") for pod in ("one", "two")}
    assert len(nodes) == 1
    space.delete("pod", "one")
    assert space.shell("two", f"head -c 2 {nodes.pop()} | od -An -tx1") == "12 01"
    assert len(usb.machine("b").call("usb.used")) == 1


def test_slow_devices_stay_on_their_node(gadgets: Gadgets, space: Space) -> None:
    gadgets.plug("a", "CLAIM005", kind="keyboard", speed="low")
    gadgets.plug("a", "CLAIM006", kind="serial", speed="full")
    for name, text in (("low", "CLAIM005"), ("full", "CLAIM006")):
        space.apply(usb_claim(name, serial(text), owner={"uid": 1000}))
        space.apply(consumer(f"{name}-on-b", name, node="b"))
    for name in ("low", "full"):
        space.pending(f"{name}-on-b")
        space.delete("pod", f"{name}-on-b")
        space.apply(consumer(f"{name}-anywhere", name))
    for name in ("low", "full"):
        assert space.run(f"{name}-anywhere").spec.node_name == "a"
    assert "hidraw0" in space.shell("low-anywhere", "ls /dev/usbdra/usb").split()
    assert space.shell("full-anywhere", echo("$USBDRA_USB_TTY0")) == "hello"


def test_two_devices_of_one_claim_and_the_better_of_two_models(
    usb: ClusterBed, gadgets: Gadgets, space: Space
) -> None:
    gadgets.plug("a", "CLAIM007")
    gadgets.plug("a", "CLAIM008", speed="super")
    both = claim(
        "both",
        [*requests(serial("CLAIM007"), "one"), *requests(serial("CLAIM008"), "two")],
        [*ties("one"), *ties("two")],
        [parameters(["two"], envPrefix="FAST")],
    )
    space.apply(both, consumer("holder", "both", node="b"))
    space.run("holder")
    assert len(space.devices("both", 2)) == 2
    hubs = sorted(row["hub"] for row in usb.machine("b").call("usb.used"))
    assert hubs == ["hs", "ss"]
    said = space.shell("holder", "echo $USBDRA_ONE_SERIAL $FAST_SERIAL")
    assert said == "CLAIM007 CLAIM008"
    space.delete("pod", "holder")
    space.delete("resourceclaim", "both")

    choices = [
        {"name": "fast", **device(attribute("speedClass", "super"))},
        {"name": "slow", **device(attribute("speedClass", "high"))},
    ]
    for name in ("first", "second"):
        asked = [{"name": "usb", "firstAvailable": choices}, link()]
        space.apply(claim(name, asked, ties()), consumer(name, name, node="b"))
        space.run(name)
    assert "usb/fast" in space.results("first")
    assert "usb/slow" in space.results("second")
    assert space.shell("second", "echo $USBDRA_USB_SERIAL") == "CLAIM007"


def test_admin_access_looks_at_a_device_in_use(
    usb: ClusterBed, gadgets: Gadgets, space: Space
) -> None:
    label = "resource.kubernetes.io/admin-access=true"
    usb.api.kubectl("label", "namespace", space.name, label)
    gadgets.plug("a", "CLAIM009")
    space.apply(usb_claim("used", serial("CLAIM009")), consumer("user", "used", node="a"))
    space.run("user")
    look = claim("look", [{"name": "usb", "exactly": device(serial("CLAIM009"), adminAccess=True)}])
    space.apply(look, consumer("observer", "look", node="a"))
    space.run("observer")
    (status,) = space.devices("look")
    assert status["conditions"][0]["reason"] == "Observed"
    reading = "head -c 2 /dev/usbdra/usb/device | od -An -tx1"
    assert space.shell("observer", reading) == space.shell("user", reading) == "12 01"
    refused = space.shell("observer", "(: >/dev/usbdra/usb/device) 2>&1 || echo refused")
    assert refused.endswith("refused")
    # what only looked takes nothing along when it goes
    space.delete("pod", "observer")
    assert space.shell("user", reading) == "12 01"
