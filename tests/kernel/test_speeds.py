# SPDX-License-Identifier: Apache-2.0
"""Each speed on the right hub, with emulated gadgets and with devices QEMU plugs in."""

from pathlib import Path

import pytest

from tests.bed.bed import Bed
from tests.bed.vm import HIGH_BUS, SUPER_BUS
from tests.kernel.conftest import Pair
from tests.kernel.product import attach, serving, usbdra

pytestmark = pytest.mark.usefixtures("trusted")
SPEEDS = {"low": ("high", 1), "full": ("high", 2), "high": ("high", 3), "super": ("super", 5)}
"""The hub of each, and the kernel's code for it."""
ROWS = {"high": "hs", "super": "ss"}
LOW_ALLOWED = {"USBDRA_FORWARD_LOW_SPEED": "true"}


def test_r06_the_speed_chooses_the_hub(pair: Pair) -> None:
    exporter, importer = pair.exporter, pair.importer
    for speed in SPEEDS:
        exporter.call("gadget.keyboard", speed, speed=speed)
        exporter.call("usb.wait", speed, child="inputs")
    with serving(exporter, env=LOW_ALLOWED):
        found = {speed: attach(importer, exporter.ip, speed) for speed in SPEEDS}
        rows = {row["port"]: row for row in importer.call("usb.used")}
        said = {port["port"]: port for port in usbdra(importer, "ports", "--used")["ports"]}
        assert len(rows) == len(said) == len(SPEEDS)
        for speed, (hub, code) in SPEEDS.items():
            port = found[speed]["port"]
            assert found[speed]["hub"] == hub
            assert (rows[port]["hub"], rows[port]["speed"]) == (ROWS[hub], code)
            imported = importer.call("usb.find", speed, imported=True)
            assert imported["speed"] == exporter.call("usb.find", speed)["speed"]
            assert (said[port]["hub"], said[port]["state"]) == (hub, "used")
            assert said[port]["localBusID"] == imported["busid"]
        importer.call("usb.detach_all")
        for speed in SPEEDS:
            assert exporter.call("usb.wait", speed, child="inputs")["driver"] == "usb"


def test_slow_devices_stay_at_home_unless_allowed(pair: Pair) -> None:
    exporter, importer = pair.exporter, pair.importer
    slow = ("low", "full")
    for speed in slow:
        exporter.call("gadget.keyboard", speed, speed=speed)
        exporter.call("usb.wait", speed, child="inputs")
    offers = {offer["serial"]: offer for offer in usbdra(exporter, "list")}
    assert {serial: offer["speedClass"] for serial, offer in offers.items()} == {
        speed: speed for speed in slow
    }
    with serving(exporter):
        for speed in slow:
            refused = usbdra(importer, "attach", exporter.ip, speed, check=False)
            assert "message" in refused
    assert importer.call("usb.used") == []
    for speed in slow:
        assert exporter.call("usb.find", speed)["driver"] == "usb"


@pytest.mark.parametrize(
    ("driver", "bus", "version", "speed"),
    [
        ("usb-kbd", SUPER_BUS, 1, "full"),
        ("usb-tablet", HIGH_BUS, 2, "high"),
        ("usb-mouse", SUPER_BUS, 2, "high"),
    ],
)
def test_devices_of_the_machine_are_listed(
    bed: Bed, driver: str, bus: str, version: int, speed: str
) -> None:
    a = bed["a"]
    a.vm.qmp.plug(driver, "plugged", bus, usb_version=version, serial="qemu-1")
    try:
        a.call("usb.wait", "qemu-1", child="inputs")
        (offer,) = usbdra(a, "list")
        assert (offer["serial"], offer["speedClass"]) == ("qemu-1", speed)
    finally:
        a.vm.qmp.unplug("plugged")
        a.call("usb.wait", "qemu-1", gone=True)


@pytest.mark.parametrize(("bus", "hub"), [(HIGH_BUS, "high"), (SUPER_BUS, "super")])
def test_a_stick_of_the_machine_works_on_the_other_node(
    bed: Bed, tmp_path: Path, bus: str, hub: str
) -> None:
    a, b = bed["a"], bed["b"]
    image = tmp_path / "stick.img"
    image.write_bytes(b"from the host of the machine".ljust(512) + bytes(8 << 20))
    a.vm.qmp.plug_storage("stick", bus, image, "qemu-stick")
    try:
        a.call("usb.wait", "qemu-stick", child="disks")
        with serving(a):
            found = attach(b, a.ip, "qemu-stick")
            assert found["hub"] == hub
            disk = b.call("usb.find", "qemu-stick", imported=True)["disks"][0]
            assert b.sh(f"head -c 28 /dev/{disk}") == "from the host of the machine"
            b.call("usb.detach_all")
            a.call("usb.wait", "qemu-stick", child="disks")
    finally:
        a.vm.qmp.unplug("stick")
        a.call("usb.wait", "qemu-stick", gone=True)
