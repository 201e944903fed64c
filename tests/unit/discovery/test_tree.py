# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.fakes.descriptors import ISOCHRONOUS, KEYBOARD, Endpoint, Interface
from tests.fakes.sysfs import FakeDevice, SysTree
from usbdra._native import sysfs
from usbdra.discovery import tree as reader
from usbdra.types import BusId, Speed, UsbInterface


def read(device: FakeDevice) -> reader.Reading:
    return reader.read(device.tree.root, device.syspath)


def found(tree: SysTree) -> list[str]:
    return [r.device.busid for r in reader.enumerate_devices(tree.root).readings]


def test_every_field_of_a_device(tree: SysTree, hs: FakeDevice) -> None:
    stick = hs.hub(1).plug(4, serial=b"4C5300", bcd="0316", devnum=9)
    device = read(stick).device
    assert device.busid == "1-1.4"
    assert device.syspath == "/sys/devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1.4"
    assert (device.busnum, device.devnum, device.devid) == (1, 9, 65545)
    assert (device.vendor_id, device.product_id, device.bcd) == ("0781", "5581", "0316")
    assert (device.manufacturer, device.product) == ("ACME", "Thing")
    assert (device.serial, device.serial_raw) == ("4C5300", b"4C5300")
    assert (device.class_code, device.subclass, device.protocol) == (0, 0, 0)
    assert device.speed is Speed.HIGH
    assert device.port_path == "pci-0000:00:14.0-usb2-0:1.4"
    assert device.interfaces == (UsbInterface(0, 8, 6, 80, "usb-storage"),)
    assert not device.isochronous
    assert (device.driver, device.authorized, device.configuration) == ("usb", True, 1)
    assert not device.imported
    assert (device.major, device.minor) == (189, 8)
    assert device.node_path == "/dev/bus/usb/001/009"


def test_r07_nothing_that_takes_the_lock_of_a_hub_is_read(tree: SysTree, hs: FakeDevice) -> None:
    hub = hs.hub(1)
    for busid in ("usb1", "1-1"):
        directory = (tree.root / "sys/bus/usb/devices" / busid).resolve()
        for name in ("manufacturer", "product", "serial", "bConfigurationValue", "descriptors"):
            (directory / name).unlink(missing_ok=True)
            (directory / name).mkdir()  # reading it would fail
    assert found(tree) == ["usb1", "1-1"]
    assert read(hub).complete
    assert (read(hub).device.serial, read(hub).device.configuration) == (None, None)


def test_no_usb_at_all(tmp_path: Path) -> None:
    assert reader.enumerate_devices(tmp_path).readings == ()


@pytest.mark.parametrize(
    ("raw", "speed"),
    [
        (b"1.5\n", Speed.LOW),
        (b"12\n", Speed.FULL),
        (b"480\n", Speed.HIGH),
        (b"5000\n", Speed.SUPER),
        (b"10000\n", Speed.SUPER_PLUS),
        (b"20000\n", Speed.SUPER_PLUS_BY_2),
        (b"unknown\n", Speed.UNKNOWN),
        (b"\n", Speed.UNKNOWN),
    ],
)
def test_r06_speed_file(hs: FakeDevice, raw: bytes, speed: Speed) -> None:
    stick = hs.plug(1)
    stick.write("speed", raw)
    assert read(stick).device.speed is speed


def test_r06_speed_file_missing(hs: FakeDevice) -> None:
    assert read(hs.plug(1, speed=None)).device.speed is Speed.UNKNOWN


def test_r16_imported_devices_are_marked(tree: SysTree, hs: FakeDevice) -> None:
    imported = tree.vhci(first_bus=5).plug(1, vendor="10c4", product="ea60")
    assert imported.busid == "5-2"
    assert read(imported).device.imported
    assert read(imported).device.port_path == "platform-vhci_hcd.0-usb2-0:2"
    assert not read(hs.plug(1)).device.imported


def test_r17_one_device_for_three_interfaces(tree: SysTree, hs: FakeDevice) -> None:
    parts = (
        Interface(3, 1, 1, number=0, driver="usbhid"),
        Interface(0x0B, number=1),
        Interface(3, number=2, driver="usbhid"),
    )
    key = hs.plug(3, vendor="1050", product="0407", interfaces=parts)
    assert found(tree) == ["usb1", "1-3"]
    assert [i.class_code for i in read(key).device.interfaces] == [3, 0x0B, 3]
    assert [i.driver for i in read(key).device.interfaces] == ["usbhid", None, "usbhid"]


def test_r18_an_exported_device_keeps_its_interfaces(tree: SysTree, hs: FakeDevice) -> None:
    stick = hs.plug(1)
    before = read(stick).device
    tree.usbip_host()
    stick.bind("usbip-host")
    stick.write("bConfigurationValue", b"\n")
    stick.remove_interfaces()
    device = read(stick).device
    assert device.driver == "usbip-host"
    assert device.configuration is None
    assert device.interfaces == (UsbInterface(0, 8, 6, 80, None),)
    assert device.port_path == before.port_path


def test_r19_serial_announced_and_not_there_yet(hs: FakeDevice) -> None:
    late = hs.plug(1, serial=b"4C5300")
    late.remove("serial")
    assert not read(late).complete
    late.write("serial", b"4C5300\n")
    assert read(late).complete


def test_r19_node_not_there_yet(hs: FakeDevice) -> None:
    late = hs.plug(1, node=False)
    assert not read(late).complete
    late.make_node()
    assert read(late).complete


def test_a_device_that_announces_no_serial_is_complete(hs: FakeDevice) -> None:
    assert read(hs.plug(1, serial=None)).complete


def test_r20_failing_devices_are_skipped(
    tree: SysTree, hs: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    for port in (2, 3, 5, 7):
        hs.plug(port)
    gone, slow = hs.path / "1-3", hs.path / "1-5"
    (slow / "speed").unlink()
    (slow / "speed").symlink_to("/proc/self/mem")  # EIO
    for file in sorted(gone.rglob("*"), reverse=True):  # vanishes after the listing
        file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink()
    gone.rmdir()
    real = sysfs.read_at

    def read_at(directory: int, name: bytes, limit: int = 4096) -> bytes:
        if name == b"idVendor" and os.readlink(f"/proc/self/fd/{directory}").endswith("/1-2"):
            raise OSError(errno.ENODEV, "read", "idVendor")
        return real(directory, name, limit)

    monkeypatch.setattr(sysfs, "read_at", read_at)
    result = reader.enumerate_devices(tree.root)
    assert [r.device.busid for r in result.readings] == ["usb1", "1-7"]
    assert sorted(result.skipped) == ["1-2", "1-3", "1-5"]
    assert "Input/output error" in result.skipped["1-5"]


def test_r20_a_device_that_goes_while_it_is_read_is_no_device(
    hs: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    stick = hs.plug(1, serial=b"4C5300")
    real = sysfs.read_at

    def read_at(directory: int, name: bytes, limit: int = 4096) -> bytes:
        if name == b"serial":
            stick.unplug()
        return real(directory, name, limit)

    monkeypatch.setattr(sysfs, "read_at", read_at)
    assert reader.read_device(stick.tree.root, stick.syspath) is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("idVendor", b"\n"),
        ("idVendor", b"07810\n"),
        ("idProduct", b"zzzz\n"),
        ("busnum", b"one\n"),
        ("devnum", b"\n"),
        ("bDeviceClass", b"\xff\n"),
        ("bConfigurationValue", b"x\n"),
        ("dev", b"189:x\n"),
    ],
)
def test_senseless_text_is_an_unreadable_device(hs: FakeDevice, name: str, text: bytes) -> None:
    stick = hs.plug(1)
    stick.write(name, text)
    assert reader.read_device(stick.tree.root, stick.syspath) is None


@pytest.mark.parametrize("name", ["idVendor", "idProduct", "busnum", "devnum", "bDeviceClass"])
def test_r38_half_a_device_is_no_device(hs: FakeDevice, name: str) -> None:
    stick = hs.plug(1)
    stick.remove(name)
    assert reader.read_device(stick.tree.root, stick.syspath) is None


def test_r21_unauthorized_device(hs: FakeDevice) -> None:
    blocked = hs.plug(1, authorized=False, configuration_value=None)
    device = read(blocked).device
    assert not device.authorized
    assert device.configuration is None
    assert device.interfaces == ()
    assert read(blocked).complete


def test_r21_configuration_zero(hs: FakeDevice) -> None:
    assert read(hs.plug(1, configuration_value=0)).device.configuration == 0


def test_r35_strange_texts_never_fail_and_cannot_reach_a_terminal(hs: FakeDevice) -> None:
    stick = hs.plug(1, product_name=b"\x1b[2J\xff  Disk \x00", manufacturer=b"   ")
    for raw in (b"\xff\xfe", b"A\x01B\x7f", b"AB\nCD", b"   ", b"", b"X" * 126):
        stick.write("serial", raw + b"\n")
        assert read(stick).device.serial_raw == raw
    device = read(stick).device
    assert device.product == "\ufffd[2J\ufffd  Disk \ufffd"
    assert device.manufacturer is None


def test_r37_ports_of_two_buses_of_one_controller(tree: SysTree) -> None:
    controller = tree.controller("0000:00:14.0")
    high, fast = controller.root_hub(1), controller.root_hub(2, "10000")
    paths = [read(high.plug(9)).device.port_path, read(fast.plug(9)).device.port_path]
    assert paths == ["pci-0000:00:14.0-usb2-0:9", "pci-0000:00:14.0-usb3-0:9"]


def test_r37_ports_keep_their_path_when_bus_numbers_swap(tmp_path: Path) -> None:
    boots = []
    for high_bus, fast_bus in ((1, 2), (2, 1)):
        tree = SysTree(tmp_path / f"boot{high_bus}")
        controller = tree.controller()
        high, fast = controller.root_hub(high_bus), controller.root_hub(fast_bus, "5000")
        boots.append([read(hub.plug(9)).device.port_path for hub in (high, fast)])
    assert boots[0] == boots[1]


def test_isochronous(hs: FakeDevice) -> None:
    camera = Interface(14, 2, alternate=1, endpoints=(Endpoint(0x82, ISOCHRONOUS),))
    parts = (Interface(14, 1), camera)
    assert read(hs.plug(1, interfaces=parts)).device.isochronous
    assert not read(hs.plug(2, interfaces=(KEYBOARD,))).device.isochronous


def test_descriptors_missing_or_cut_are_no_obstacle(hs: FakeDevice) -> None:
    stick = hs.plug(1)
    stick.write("descriptors", b"\x12")
    assert not read(stick).device.isochronous
    stick.remove("descriptors")
    assert read(stick).device.vendor_id == "0781"


def test_tree_of_plain_directories(tmp_path: Path) -> None:
    flat = tmp_path / "sys/bus/usb/devices/1-4"
    flat.mkdir(parents=True)
    for name, text in (
        ("idVendor", "0781"),
        ("idProduct", "5581"),
        ("busnum", "1"),
        ("devnum", "4"),
        ("bDeviceClass", "00"),
    ):
        (flat / name).write_text(f"{text}\n")
    (device,) = (r.device for r in reader.enumerate_devices(tmp_path).readings)
    assert device.syspath == "/sys/bus/usb/devices/1-4"
    assert device.port_path == "bus-1-4"


def test_links_out_of_the_root_are_not_followed(tree: SysTree, hs: FakeDevice) -> None:
    (tree.sys / "bus/usb/devices/1-9").symlink_to("/etc")
    (tree.sys / "bus/usb/devices/1-8").symlink_to("../../../../../../../etc")
    assert found(tree) == ["usb1"]


def test_absolute_links_below_the_root(tree: SysTree, hs: FakeDevice) -> None:
    stick = hs.plug(1)
    at = tree.sys / "bus/usb/devices/1-1"
    at.unlink()
    at.symlink_to(stick.path)
    assert found(tree) == ["usb1", "1-1"]


def test_names_of_devices_and_of_other_things() -> None:
    assert all(map(reader.is_device_name, ("usb1", "usb12", "1-1", "1-1.4", "10-2.1.3")))
    assert not any(map(reader.is_device_name, ("1-1:1.0", "1-0:1.0", "ep_00", "usb", "1-", "-1")))


def test_poke_writes_to_the_bus_alone(tree: SysTree) -> None:
    bus = tree.sys / "bus/usb/uevent"
    bus.write_text("")
    reader.poke(tree.root)
    assert bus.read_text() == "change"


def test_a_device_by_its_bus_id(hs: FakeDevice) -> None:
    stick = hs.plug(3, serial=b"A")
    device = reader.device_at(hs.tree.root, BusId(stick.busid))
    assert device is not None
    assert device.serial == "A"
    stick.unplug()
    assert reader.device_at(hs.tree.root, BusId(stick.busid)) is None


def test_a_device_pulled_while_its_path_is_read(
    hs: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    stick = hs.plug(3)
    lstat = os.lstat

    def pulled(path: str) -> os.stat_result:
        found = lstat(path)
        if path.endswith("/bus/usb/devices/1-3"):
            os.unlink(path)
        return found

    monkeypatch.setattr(os, "lstat", pulled)
    assert reader.device_at(hs.tree.root, BusId(stick.busid)) is None
    assert not os.path.lexists(hs.tree.sys / "bus/usb/devices/1-3"), "nothing was read"
