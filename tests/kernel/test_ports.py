# SPDX-License-Identifier: Apache-2.0
"""Ports: the 15 + 15 of 8 controllers, hubs that fill up, and foreign tools that take ports."""

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
    assert node.python(RACE).out == "[[0, 1], 2]\n"


def test_foreign_ports_count_as_used_and_are_left_alone(pair: Pair) -> None:
    exporter, importer = pair.exporter, pair.importer
    for port in (0, 1, 30):
        assert importer.call("raw.attach_silent", port, 3) == 0
    answer = usbdra(importer, "ports")
    assert answer["free"] == {"high": 117, "super": 120}
    exporter.call("gadget.storage", "beside")
    exporter.call("usb.wait", "beside", child="disks")
    with serving(exporter):
        found = attach(importer, exporter.ip, "beside")
        assert found["port"] == 2
        detach(importer, 2)
        assert sorted(r["port"] for r in importer.call("usb.used")) == [0, 1, 30]


def test_r03_a_full_hub_is_told_and_the_other_hub_is_not_used(pair: Pair) -> None:
    exporter, importer = pair.exporter, pair.importer
    for port in HIGH_PORTS:
        assert importer.call("raw.attach_silent", port, 3) == 0
    answer = usbdra(importer, "ports")
    assert answer["free"] == {"high": 0, "super": 120}
    exporter.call("gadget.storage", "waits")
    device = exporter.call("usb.wait", "waits", child="disks")
    exporter.call("gadget.storage", "fits", speed="super")
    exporter.call("usb.wait", "fits", child="disks")
    with serving(exporter):
        refused = usbdra(importer, "attach", exporter.ip, "waits", check=False)
        assert "no high-speed port free" in refused["message"]
        # the device is its host's again, and the super-speed hub still works
        home = exporter.call("usb.wait", "waits", child="disks")
        assert home["interfaces"] == device["interfaces"]
        found = attach(importer, exporter.ip, "fits")
        assert (found["hub"], found["port"]) == ("super", 15)
        detach(importer, 15)
        importer.call("raw.drop_silent")
        importer.call("usb.wait_used", 0)
        found = attach(importer, exporter.ip, "waits")
        assert found["hub"] == "high"
        detach(importer, found["port"])


def test_two_attaches_at_once_take_two_ports(pair: Pair) -> None:
    exporter, importer = pair.exporter, pair.importer
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
        assert sorted(r["port"] for r in importer.call("usb.used")) == [0, 1]
        for port in (0, 1):
            detach(importer, port)
