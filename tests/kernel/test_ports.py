# SPDX-License-Identifier: Apache-2.0
"""Ports: the 15 + 15 of 8 controllers, hubs that fill up, and foreign tools that take ports.

What the kernels' ports do is tested on both (test_facts.py); what we make of it, on one.
"""

import pytest

from tests.bed.node import Node
from tests.kernel.conftest import Pair
from tests.kernel.product import attach, detach, serving, usbdra

pytestmark = pytest.mark.usefixtures("trusted")
HIGH_PORTS = [30 * controller + place for controller in range(8) for place in range(15)]

# attach on this kernel while a foreign tool takes the first ports that we choose
RACE = """
import asyncio, json, socket, sys
sys.path.insert(0, "/run/bed")
import raw
from usbdra.vhci.driver import VhciDriver
taken = []
async def foreign(port):
    if len(taken) < 2:
        assert raw.attach_silent(port, 3) == 0
        taken.append(port)
ours, peer = socket.socketpair()
placed = asyncio.run(VhciDriver().attach(ours.fileno(), 0x20003, 3, before=foreign))
print(json.dumps([taken, placed.port]))
"""


def test_r01_all_240_ports_are_seen(node: Node) -> None:
    answer = usbdra(node, "ports")
    assert [port["port"] for port in answer["ports"]] == list(range(240))
    assert answer["capacity"] == {"high": 120, "super": 120}
    assert answer["free"] == {"high": 120, "super": 120}
    assert [p["port"] for p in answer["ports"] if p["hub"] == "high"] == HIGH_PORTS
    assert [p["controller"] for p in answer["ports"]] == [port // 30 for port in range(240)]


def test_r04_a_port_taken_between_choice_and_attach(node: Node) -> None:
    assert node.python(RACE).out == "[[0, 30], 60]\n"  # each on the next quiet controller


def test_r07_a_silent_peer_holds_up_no_one_else(a_to_b: Pair) -> None:
    exporter, importer = a_to_b.exporter, a_to_b.importer
    assert importer.call("raw.attach_silent", 0, 3) == 0
    exporter.call("gadget.storage", "other")
    exporter.call("usb.wait", "other", child="disks")
    assert usbdra(importer, "list") == []
    with serving(exporter):
        found = attach(importer, exporter.ip, "other")
        assert found["port"] == 30  # the next controller
        detach(importer, 30)
        detach(importer, 0)


def test_foreign_ports_count_as_used_and_are_left_alone(b_to_a: Pair) -> None:
    exporter, importer = b_to_a.exporter, b_to_a.importer
    busid = {}
    for serial in ("foreign", "ours"):
        exporter.call("gadget.storage", serial)
        busid[serial] = exporter.call("usb.wait", serial, child="disks")["busid"]
    exporter.run(["usbip", "bind", "-b", busid["foreign"]])
    stock = exporter.start(["usbipd"])
    stock.wait_for("listening on 0.0.0.0")
    importer.run(["usbip", "attach", "-r", exporter.ip, "-b", busid["foreign"]])
    importer.call("usb.wait", "foreign", imported=True, child="disks")
    assert usbdra(importer, "ports")["free"] == {"high": 119, "super": 120}
    with serving(exporter):
        found = attach(importer, exporter.ip, "ours")
        assert found["port"] == 1
        detach(importer, 1)
    disk = importer.call("usb.find", "foreign", imported=True)["disks"][0]
    importer.call("raw.read_sha256", disk, 1)
    assert [r["port"] for r in importer.call("usb.used")] == [0]
    stock.stop()


def test_r03_a_full_hub_is_told_and_the_other_hub_is_not_used(b_to_a: Pair) -> None:
    exporter, importer = b_to_a.exporter, b_to_a.importer
    for port in HIGH_PORTS:
        assert importer.call("raw.attach_silent", port, 3) == 0
    assert usbdra(importer, "ports")["free"] == {"high": 0, "super": 120}
    exporter.call("gadget.storage", "waits")
    device = exporter.call("usb.wait", "waits", child="disks")
    with serving(exporter):
        refused = usbdra(importer, "attach", exporter.ip, "waits", check=False)
        assert "no high-speed port free" in refused["message"]
        home = exporter.call("usb.wait", "waits", child="disks")
        assert home["interfaces"] == device["interfaces"]
        assert {r["hub"] for r in importer.call("usb.used")} == {"hs"}
        importer.call("raw.drop_silent")
        importer.call("usb.wait_used", 0)
        found = attach(importer, exporter.ip, "waits")
        assert found["hub"] == "high"
        importer.call("usb.detach_all")
        exporter.call("usb.wait", "waits", child="disks")


def test_two_attaches_at_once_take_two_ports(a_to_b: Pair) -> None:
    exporter, importer = a_to_b.exporter, a_to_b.importer
    for serial in ("one", "two"):
        exporter.call("gadget.storage", serial)
        exporter.call("usb.wait", serial, child="disks")
    with serving(exporter):
        started = [
            importer.start(["usbdra", "attach", exporter.ip, serial], limit=120)
            for serial in ("one", "two")
        ]
        for process in started:
            assert process.wait(120).rc == 0, process.err
        rows = importer.call("usb.used")
        assert [row["hub"] for row in rows] == ["hs", "hs"]
        importer.call("usb.detach_all")
        for serial in ("one", "two"):
            exporter.call("usb.wait", serial, child="disks")
