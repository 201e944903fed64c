# SPDX-License-Identifier: Apache-2.0
"""Links without the product: made by hand through sysfs, and by Debian's stock tools.

They prove the bed, and are the yardstick for the product's own tests.
"""

import secrets
from pathlib import Path

import pytest

from tests.bed.bed import Bed
from tests.kernel.conftest import Pair, tls_stat

MARKER = "USBDRA-PLAIN-TEXT-MARKER-"
FREE, USED = 4, 6
CODES = {"1.5": 1, "12": 2, "480": 3, "5000": 5}


def key_pair() -> list[str]:
    """Key, salt and iv for each direction."""
    return [secrets.token_hex(28) for _ in range(2)]


def export_stick(pair: Pair, serial: str, keys: list[str] | None, speed: str = "high") -> int:
    """A stick on the exporter, bound and waiting for a connection; its device id."""
    pair.exporter.call("gadget.storage", serial, speed=speed)
    device = pair.exporter.call("usb.wait", serial, child="disks")
    pair.exporter.call("raw.fill", device["disks"][0], 1, marker=MARKER)
    pair.exporter.call("usb.bind", device["busid"])
    pair.exporter.call("raw.export", device["busid"], keys=keys)
    return int(device["busnum"] << 16 | device["devnum"])


@pytest.mark.parametrize(("speed", "port", "hub"), [("high", 1, "hs"), ("super", 16, "ss")])
def test_disk_over_a_hand_made_link(pair: Pair, speed: str, port: int, hub: str) -> None:
    devid = export_stick(pair, "raw", None, speed)
    code = {"high": 3, "super": 5}[speed]
    pair.importer.call("raw.attach", pair.exporter.ip, devid, port, code)
    disk = pair.importer.call("usb.wait", "raw", imported=True, child="disks")["disks"][0]
    (row,) = pair.importer.call("usb.used")
    assert (row["hub"], row["port"], row["state"]) == (hub, port, USED)
    assert row["dev"] == devid
    assert pair.exporter.call("usb.find", "raw")["status"] == "2"
    wrote = pair.importer.call("raw.fill", disk, 4)
    assert pair.importer.call("raw.read_sha256", disk, 4)["sha256"] == wrote
    # end it: the row comes free, the device is available, then the host's driver has it again
    pair.importer.call("usb.store", "/sys/devices/platform/vhci_hcd.0/detach", str(port))
    pair.importer.call("usb.wait_row", port, FREE)
    assert pair.importer.call("usb.find", "raw", imported=True) is None
    device = pair.exporter.call("usb.wait_status", "raw", "1")
    pair.exporter.call("usb.release", device["busid"])
    disk = pair.exporter.call("usb.wait", "raw", child="disks")["disks"][0]
    assert pair.exporter.call("raw.read_sha256", disk, 4)["sha256"] == wrote


def test_capture_of_a_kernel_tls_link_shows_nothing(bed: Bed, tmp_path: Path) -> None:
    """One direction: commands and data go both ways, so each kernel sends and receives."""
    pair = Pair(bed["a"], bed["b"])
    devid = export_stick(pair, "unseen", keys := key_pair())
    before = tls_stat(pair.importer)
    with bed.network.capture(pair.importer.name, tmp_path / "tls.pcap") as file:
        pair.importer.call("raw.attach", pair.exporter.ip, devid, 1, 3, keys=keys)
        disk = pair.importer.call("usb.wait", "unseen", imported=True, child="disks")["disks"][0]
        pair.importer.call("raw.read_sha256", disk, 1)
    data = file.read_bytes()
    assert len(data) > 1 << 20
    assert MARKER.encode() not in data
    assert b"unseen" not in data
    stat = tls_stat(pair.importer)
    assert (stat["TlsCurrTxSw"], stat["TlsCurrRxSw"]) == (1, 1)
    assert stat["TlsDecryptError"] == before["TlsDecryptError"]


def test_link_over_ipv6(pair: Pair) -> None:
    pair.exporter.call("gadget.keyboard", "kbd6", speed="low")
    device = pair.exporter.call("usb.wait", "kbd6", child="inputs")
    pair.exporter.call("usb.bind", device["busid"])
    pair.exporter.call("raw.export", device["busid"], v6=True)
    devid = device["busnum"] << 16 | device["devnum"]
    pair.importer.call("raw.attach", pair.exporter.ip6, devid, 0, CODES[device["speed"]])
    imported = pair.importer.call("usb.wait", "kbd6", imported=True, child="inputs")
    assert imported["speed"] == "1.5"


def test_the_end_of_a_link_is_announced_on_both_ends(pair: Pair) -> None:
    devid = export_stick(pair, "ends", None)
    pair.importer.call("raw.attach", pair.exporter.ip, devid, 1, 3)
    pair.importer.call("usb.wait", "ends", imported=True, child="disks")
    watchers = [
        node.start(["python3", "-c", "import raw; raw.watch_destroyed(3240)"])
        for node in (pair.exporter, pair.importer)
    ]
    for watcher in watchers:
        watcher.wait_for("ready")
    pair.importer.call("usb.store", "/sys/devices/platform/vhci_hcd.0/detach", "1")
    for watcher in watchers:
        assert watcher.wait(30).rc == 0


def test_stock_tools_both_ways(pair: Pair) -> None:
    pair.exporter.call("gadget.storage", "stock")
    device = pair.exporter.call("usb.wait", "stock", child="disks")
    wrote = pair.exporter.call("raw.fill", device["disks"][0], 4)
    pair.exporter.run(["usbip", "bind", "-b", device["busid"]])
    daemon = pair.exporter.start(["usbipd"])
    daemon.wait_for("listening on 0.0.0.0")
    offered = pair.importer.run(["usbip", "list", "-r", pair.exporter.ip]).out
    assert f"{device['busid']}: " in offered
    pair.importer.run(["usbip", "attach", "-r", pair.exporter.ip, "-b", device["busid"]])
    disk = pair.importer.call("usb.wait", "stock", imported=True, child="disks")["disks"][0]
    assert pair.importer.call("raw.read_sha256", disk, 4)["sha256"] == wrote
    pair.importer.run(["usbip", "detach", "-p", "0"])
    pair.importer.call("usb.wait_row", 0, FREE)
    pair.exporter.call("usb.wait_status", "stock", "1")
    pair.exporter.run(["usbip", "unbind", "-b", device["busid"]])
    device = pair.exporter.call("usb.wait", "stock", child="disks")
    assert pair.exporter.call("raw.read_sha256", device["disks"][0], 4)["sha256"] == wrote
    daemon.stop()


def test_serial_port_and_keyboard_over_one_network(pair: Pair) -> None:
    for name, make, child in (("tty", "serial", "ttys"), ("kbd", "keyboard", "inputs")):
        pair.exporter.call(f"gadget.{make}", name)
        device = pair.exporter.call("usb.wait", name, child=child)
        pair.exporter.call("usb.bind", device["busid"])
        port = {"tty": 3241, "kbd": 3242}[name]
        pair.exporter.call("raw.export", device["busid"], port=port)
        devid = device["busnum"] << 16 | device["devnum"]
        row = {"tty": 3, "kbd": 4}[name]
        code = CODES[device["speed"]]
        pair.importer.call("raw.attach", pair.exporter.ip, devid, row, code, port=port)
    tty = pair.importer.call("usb.wait", "tty", imported=True, child="ttys")["ttys"][0]
    assert pair.importer.call("raw.echo", tty, "hello over the net\n") == "hello over the net\n"
    event = pair.importer.call("usb.wait", "kbd", imported=True, child="inputs")["inputs"][0]
    reader = pair.importer.start(
        ["python3", "-c", f"import raw; print(raw.keys('{event}', 3, ready=True))"]
    )
    reader.wait_for("ready")
    pair.exporter.call("gadget.press", "kbd", 4, 5, 6)
    assert reader.wait().out.split("\n")[1] == "[30, 48, 46]"  # KEY_A, KEY_B, KEY_C
