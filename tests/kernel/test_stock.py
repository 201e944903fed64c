# SPDX-License-Identifier: Apache-2.0
"""Plain mode against Debian's `usbip` and `usbipd`, both ways."""

from tests.kernel.conftest import Pair
from tests.kernel.product import attach, detach, serving, usbdra

FREE = 4


def test_stock_usbip_uses_a_device_of_usbdra_serve(pair: Pair) -> None:
    exporter, importer = pair.exporter, pair.importer
    exporter.call("gadget.storage", "ours")
    device = exporter.call("usb.wait", "ours", child="disks")
    wrote = exporter.call("raw.fill", device["disks"][0], 4)
    with serving(exporter, "--plain") as server:
        assert "NOT encrypted" in server.out
        offered = importer.run(["usbip", "list", "-r", exporter.ip]).out
        assert f"{device['busid']}: " in offered
        importer.run(["usbip", "attach", "-r", exporter.ip, "-b", device["busid"]])
        disk = importer.call("usb.wait", "ours", imported=True, child="disks")["disks"][0]
        assert importer.call("raw.read_sha256", disk, 4)["sha256"] == wrote
        wrote = importer.call("raw.fill", disk, 4)
        importer.run(["usbip", "detach", "-p", "0"])
        importer.call("usb.wait_row", 0, FREE)
        disk = exporter.call("usb.wait", "ours", child="disks")["disks"][0]
    assert exporter.call("raw.read_sha256", disk, 4)["sha256"] == wrote


def test_usbdra_attach_uses_a_device_of_stock_usbipd(pair: Pair) -> None:
    exporter, importer = pair.exporter, pair.importer
    exporter.call("gadget.storage", "theirs", speed="super")
    device = exporter.call("usb.wait", "theirs", child="disks")
    wrote = exporter.call("raw.fill", device["disks"][0], 4)
    exporter.run(["usbip", "bind", "-b", device["busid"]])
    daemon = exporter.start(["usbipd"])
    daemon.wait_for("listening on 0.0.0.0")
    try:
        (offer,) = usbdra(importer, "remote", exporter.ip, "--plain")
        assert (offer["busID"], offer["vendorID"]) == (device["busid"], "1d6b")
        found = attach(importer, exporter.ip, device["busid"], "--plain")
        assert found["hub"] == "super"
        disk = importer.call("usb.find", "theirs", imported=True)["disks"][0]
        assert importer.call("raw.read_sha256", disk, 4)["sha256"] == wrote
        detach(importer, found["port"])
        exporter.call("usb.wait_status", "theirs", "1")
    finally:
        daemon.stop()


def test_stock_usbip_is_told_that_a_device_is_taken(pair: Pair) -> None:
    exporter, importer = pair.exporter, pair.importer
    exporter.call("gadget.storage", "once")
    busid = exporter.call("usb.wait", "once", child="disks")["busid"]
    with serving(exporter, "--plain"):
        importer.run(["usbip", "attach", "-r", exporter.ip, "-b", busid])
        importer.call("usb.wait", "once", imported=True, child="disks")
        again = importer.run(["usbip", "attach", "-r", exporter.ip, "-b", busid], check=False)
        assert again.rc != 0
        assert len(importer.call("usb.used")) == 1
        importer.run(["usbip", "detach", "-p", "0"])
        importer.call("usb.wait_row", 0, FREE)


def test_plain_is_refused_where_encryption_is_expected(pair: Pair, trusted: None) -> None:
    exporter, importer = pair.exporter, pair.importer
    exporter.call("gadget.storage", "plain")
    exporter.call("usb.wait", "plain", child="disks")
    with serving(exporter):
        usbdra(importer, "remote", exporter.ip, "--plain", "--port", "3241", check=False)
        assert importer.run(["usbip", "list", "-r", exporter.ip], check=False).rc != 0
    assert exporter.call("usb.find", "plain")["driver"] == "usb"
