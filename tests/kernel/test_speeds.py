# SPDX-License-Identifier: Apache-2.0
"""Each speed on the right hub, with emulated gadgets and with devices QEMU plugs in."""

from pathlib import Path

import pytest

from tests.bed.bed import Bed
from tests.bed.vm import HIGH_BUS, SUPER_BUS
from tests.kernel.conftest import Pair
from tests.kernel.product import attach, detach, serving, usbdra

pytestmark = pytest.mark.usefixtures("trusted")
LOW_ALLOWED = {"USBDRA_FORWARD_LOW_SPEED": "true"}


@pytest.mark.parametrize(
    ("speed", "hub", "code"),
    [("low", "high", 1), ("full", "high", 2), ("high", "high", 3), ("super", "super", 5)],
)
def test_r06_the_speed_chooses_the_hub(pair: Pair, speed: str, hub: str, code: int) -> None:
    exporter, importer = pair.exporter, pair.importer
    exporter.call("gadget.keyboard", "kbd", speed=speed)
    exporter.call("usb.wait", "kbd", child="inputs")
    with serving(exporter, env=LOW_ALLOWED):
        found = attach(importer, exporter.ip, "kbd")
        assert found["hub"] == hub
        (row,) = importer.call("usb.used")
        assert (row["hub"], row["speed"]) == ({"high": "hs", "super": "ss"}[hub], code)
        imported = importer.call("usb.find", "kbd", imported=True)
        assert imported["speed"] == exporter.call("usb.find", "kbd")["speed"]
        (port,) = usbdra(importer, "ports", "--used")["ports"]
        assert (port["port"], port["hub"], port["state"]) == (row["port"], hub, "used")
        assert port["localBusID"] == imported["busid"]
        detach(importer, found["port"])


@pytest.mark.parametrize("speed", ["low", "full"])
def test_slow_devices_stay_at_home_unless_allowed(pair: Pair, speed: str) -> None:
    exporter, importer = pair.exporter, pair.importer
    exporter.call("gadget.keyboard", "slow", speed=speed)
    exporter.call("usb.wait", "slow", child="inputs")
    (offer,) = usbdra(exporter, "list")
    assert offer["speedClass"] == speed
    with serving(exporter):
        refused = usbdra(importer, "attach", exporter.ip, "slow", check=False)
        assert "message" in refused
    assert importer.call("usb.used") == []
    assert exporter.call("usb.find", "slow")["driver"] == "usb"


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
            detach(b, found["port"])
            a.call("usb.wait", "qemu-stick", child="disks")
    finally:
        a.vm.qmp.unplug("stick")
        a.call("usb.wait", "qemu-stick", gone=True)
