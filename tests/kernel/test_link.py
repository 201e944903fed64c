# SPDX-License-Identifier: Apache-2.0
"""The main job, encrypted as by default: export, attach, use, detach, driver back."""

import json

import pytest

from tests.bed.bed import Bed
from tests.bed.node import Node
from tests.bed.vm import SUPER_BUS
from tests.kernel.conftest import Pair
from tests.kernel.product import attach, detach, serving, usbdra

pytestmark = pytest.mark.usefixtures("trusted")
USED = "2"


def home(node: Node, serial: str, child: str = "disks") -> dict[str, object]:
    """Wait until the device is its host's own again."""
    device: dict[str, object] = node.call("usb.wait", serial, child=child)
    assert device["driver"] == "usb"
    assert device["busid"] not in node.call("usb.matched")
    return device


@pytest.mark.parametrize(("speed", "hub"), [("high", "high"), ("super", "super")])
def test_a_disk_is_read_and_written_and_given_back(pair: Pair, speed: str, hub: str) -> None:
    exporter, importer = pair.exporter, pair.importer
    exporter.call("gadget.storage", "stick", speed=speed)
    disk = exporter.call("usb.wait", "stick", child="disks")["disks"][0]
    wrote = exporter.call("raw.fill", disk, 4)
    with serving(exporter):
        found = attach(importer, exporter.ip, "stick")
        assert found["hub"] == hub
        assert exporter.call("usb.find", "stick")["status"] == USED
        disk = importer.call("usb.find", "stick", imported=True)["disks"][0]
        assert f"/dev/{disk}" in [child["path"] for child in found["children"]]
        assert importer.call("raw.read_sha256", disk, 4)["sha256"] == wrote
        wrote = importer.call("raw.fill", disk, 4)
        # an imported device is not offered again (R16)
        assert usbdra(importer, "list") == []
        detach(importer, found["port"])
        assert importer.call("usb.used") == []
        disk = home(exporter, "stick")["disks"][0]  # type: ignore[index]
    assert exporter.call("raw.read_sha256", disk, 4)["sha256"] == wrote


def test_a_serial_port_echoes(pair: Pair) -> None:
    pair.exporter.call("gadget.serial", "tty")
    pair.exporter.call("usb.wait", "tty", child="ttys")
    with serving(pair.exporter):
        found = attach(pair.importer, pair.exporter.ip, "tty")
        (tty,) = pair.importer.call("usb.find", "tty", imported=True)["ttys"]
        assert f"/dev/{tty}" in [child["path"] for child in found["children"]]
        text = "a line, another node\n"
        assert pair.importer.call("raw.echo", tty, text) == text
        detach(pair.importer, found["port"])
        home(pair.exporter, "tty", "ttys")


def test_a_keyboard_types(pair: Pair) -> None:
    pair.exporter.call("gadget.keyboard", "kbd", speed="high")
    pair.exporter.call("usb.wait", "kbd", child="inputs")
    with serving(pair.exporter):
        found = attach(pair.importer, pair.exporter.ip, "kbd")
        (event,) = pair.importer.call("usb.find", "kbd", imported=True)["inputs"]
        reader = pair.importer.start(
            ["python3", "-c", f"import raw; print(raw.keys('{event}', 3, ready=True))"]
        )
        reader.wait_for("ready")
        pair.exporter.call("gadget.press", "kbd", 4, 5, 6)
        assert reader.wait().out.split("\n")[1] == "[30, 48, 46]"  # KEY_A, KEY_B, KEY_C
        detach(pair.importer, found["port"])
        home(pair.exporter, "kbd", "inputs")


def test_r28_a_sound_card_is_marked_and_attaches(pair: Pair) -> None:
    exporter, importer = pair.exporter, pair.importer
    exporter.vm.qmp.plug("usb-audio", "sound", SUPER_BUS, audiodev="silence", serial="card")
    try:
        exporter.call("usb.wait", "card", child="cards")
        (offer,) = usbdra(exporter, "list")
        assert (offer["isochronous"], offer["speedClass"]) == (True, "full")
        with serving(exporter, env={"USBDRA_FORWARD_LOW_SPEED": "true"}):
            found = attach(importer, exporter.ip, "card")
            importer.call("usb.wait", "card", imported=True, child="cards")
            detach(importer, found["port"])
            home(exporter, "card", "cards")
    finally:
        exporter.vm.qmp.unplug("sound")
        exporter.call("usb.wait", "card", gone=True)


def test_a_running_link_outlives_the_exporter_program(pair: Pair) -> None:
    exporter, importer = pair.exporter, pair.importer
    exporter.call("gadget.storage", "outlive")
    disk = exporter.call("usb.wait", "outlive", child="disks")["disks"][0]
    wrote = exporter.call("raw.fill", disk, 2)
    with serving(exporter):
        found = attach(importer, exporter.ip, "outlive")
    for node in (exporter, importer):  # both kernels' own word
        found_by_doctor = json.loads(node.run(["usbdra", "doctor", "-o", "json"], check=False).out)
        told = {one["check"]: one["seen"] for one in found_by_doctor}
        assert told["links"] == "1 link on port 3241, all encrypted"
    disk = importer.call("usb.find", "outlive", imported=True)["disks"][0]
    assert importer.call("raw.read_sha256", disk, 2)["sha256"] == wrote
    detach(importer, found["port"])
    # the next exporter finds the ended session and gives the device back
    with serving(exporter):
        home(exporter, "outlive")


def test_r30_a_second_node_is_refused_at_once_with_the_holder(bed: Bed) -> None:
    a, b = bed["a"], bed["b"]
    a.call("gadget.storage", "held")
    a.call("usb.wait", "held", child="disks")
    with serving(a):
        found = attach(b, a.ip, "held")
        # a itself asks as another node: it is no holder
        refused = usbdra(a, "attach", a.ip, "held", check=False)
        assert "usbdra attach on b" in refused["message"]
        assert a.call("usb.used") == []
        assert b.call("usb.find", "held", imported=True) is not None
        detach(b, found["port"])


def test_r12_a_node_that_lost_power_is_served_again(bed: Bed) -> None:
    a, b = bed["a"], bed["b"]
    a.call("gadget.storage", "again")
    a.call("usb.wait", "again", child="disks")
    with serving(a):
        attach(b, a.ip, "again")
        b.reset()  # no packet says goodbye
        home(a, "again")  # without being asked for it
        found = attach(b, a.ip, "again")
        b.call("usb.wait", "again", imported=True, child="disks")
        detach(b, found["port"])
        home(a, "again")


def test_a_device_pulled_while_in_use_leaves_nothing(pair: Pair) -> None:
    exporter, importer = pair.exporter, pair.importer
    exporter.call("gadget.storage", "pulled")
    exporter.call("usb.wait", "pulled", child="disks")
    with serving(exporter):
        attach(importer, exporter.ip, "pulled")
        exporter.call("gadget.unplug", "pulled")
        importer.call("usb.wait", "pulled", imported=True, gone=True)
        importer.call("usb.wait_used", 0)
        # plugged in again it can be attached again
        exporter.call("gadget.replug", "pulled")
        exporter.call("usb.wait", "pulled", child="disks")
        found = attach(importer, exporter.ip, "pulled")
        detach(importer, found["port"])
        home(exporter, "pulled")


def test_a_stranger_with_another_ca_is_refused(bed: Bed) -> None:
    a, b = bed["a"], bed["b"]
    a.call("gadget.storage", "mine")
    device = a.call("usb.wait", "mine", child="disks")
    b.run("rm -rf /root/other && usbdra pki init --dir /root/other")
    b.run("usbdra pki issue b --dir /root/other")
    b.run("cp /root/other/nodes/b/* /root/other/")
    env = {"USBDRA_PKI_DIR": "/root/other"}
    with serving(a):
        refused = usbdra(b, "attach", a.ip, "mine", check=False, env=env)
        assert "certificate" in refused["message"]
    assert a.call("usb.find", "mine")["interfaces"] == device["interfaces"]
    assert b.call("usb.used") == []


def test_nobody_listens_is_told_at_once(bed: Bed) -> None:
    refused = usbdra(bed["b"], "attach", bed["a"].ip, "any", check=False)
    assert bed["a"].ip in refused["message"]
    assert "refused" in refused["message"].lower()
