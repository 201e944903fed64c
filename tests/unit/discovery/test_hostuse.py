# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys

import pytest

from tests.fakes.sysfs import KEYBOARD, STORAGE, FakeDevice, SysTree
from usbdra.discovery import hostuse
from usbdra.discovery.hostuse import find_holders
from usbdra.discovery.tree import enumerate_devices


def holders(tree: SysTree) -> dict[str, str]:
    devices = [r.device for r in enumerate_devices(tree.root).readings]
    return {str(busid): text for busid, text in find_holders(tree.root, devices).items()}


@pytest.fixture
def disk(hs: FakeDevice) -> FakeDevice:
    disk = hs.plug(3, interfaces=(STORAGE,))
    disk.child("block", "sda", ("sda1", "sda2"))
    return disk


def test_r13_mounted_partition(tree: SysTree, hs: FakeDevice, disk: FakeDevice) -> None:
    other = hs.plug(4)
    other.child("block", "sdb", ("sdb1",), minor=16)
    assert holders(tree) == {}
    tree.mount("/media/my disk".replace(" ", "\\040"), "8:1", "/dev/sda1")
    assert holders(tree) == {"1-3": "mounted at /media/my disk (sda1)"}


def test_r13_the_disk_that_holds_root_names_root_first(tree: SysTree, disk: FakeDevice) -> None:
    tree.mount("/", "8:2", "/dev/root")
    tree.mount("/boot", "8:1", "/dev/sda1")
    assert holders(tree) == {"1-3": "mounted at / (sda2)"}


def test_r13_whole_disk_without_partitions(tree: SysTree, disk: FakeDevice) -> None:
    tree.mount("/data", "8:0", "/dev/sda")
    assert holders(tree) == {"1-3": "mounted at /data (sda)"}


def test_r13_root_below_device_mapper_and_md(tree: SysTree, disk: FakeDevice) -> None:
    part = tree.sys / "class/block/sda2"
    md = tree.virtual_block("md0", "9:0", [part.resolve()])
    tree.virtual_block("dm-0", "253:0", [md])
    tree.mount("/", "253:0", "/dev/mapper/vg-root")
    assert holders(tree) == {"1-3": "mounted at / (sda2)"}


def test_r13_device_mapper_by_node_name(tree: SysTree, disk: FakeDevice) -> None:
    tree.virtual_block("dm-0", "253:0", [(tree.sys / "class/block/sda1").resolve()])
    mapper = tree.root / "dev/mapper"
    mapper.mkdir()
    (mapper / "crypt").symlink_to("../dm-0")
    tree.mount("/srv", "0:44", "/dev/mapper/crypt", fstype="btrfs")
    assert holders(tree) == {"1-3": "mounted at /srv (sda1)"}


def test_r13_second_disk_of_a_btrfs(tree: SysTree, disk: FakeDevice) -> None:
    devices = tree.sys / "fs/btrfs/2f0c/devices"
    devices.mkdir(parents=True)
    (devices / "sda2").symlink_to("../../../../class/block/sda2")
    assert holders(tree) == {"1-3": "part of the mounted btrfs 2f0c (sda2)"}


def test_r13_swap(tree: SysTree, disk: FakeDevice) -> None:
    tree.swap("/dev/sda2")
    assert holders(tree) == {"1-3": "swap (sda2)"}


def test_r13_mount_seen_only_by_the_first_process(tree: SysTree, disk: FakeDevice) -> None:
    tree.proc("1/mountinfo", "22 1 8:1 / /host rw,relatime shared:1 - ext4 /dev/sda1 rw\n")
    assert holders(tree) == {"1-3": "mounted at /host (sda1)"}


def test_r13_tree_with_whole_disks_only(tree: SysTree, disk: FakeDevice) -> None:
    for name in ("class/block/sda", "class/block/sda1", "class/block/sda2", "dev/block/8:2"):
        (tree.sys / name).unlink()
    tree.mount("/", "8:2", "/dev/sda2")
    assert holders(tree) == {"1-3": "mounted at / (sda2)"}


def test_disks_that_are_not_usb_hold_nothing(tree: SysTree, disk: FakeDevice) -> None:
    tree.virtual_block("loop0", "7:0", [])
    tree.mount("/snap", "7:0", "/dev/loop0")
    tree.mount("/proc", "0:5", "proc", fstype="proc")
    tree.proc("self/mountinfo", "garbage\n8:1\n1 2 3 4 5 6 7 8 9 10 11\n")
    assert holders(tree) == {}


def test_r13_nic_of_the_default_route(tree: SysTree, hs: FakeDevice) -> None:
    hs.plug(1).child("net", "eth1")
    hs.plug(2).child("net", "eth2")
    tree.default_route("eth1")
    assert holders(tree) == {"1-1": "network interface eth1 with the default route"}


def test_r13_ipv6_default_route(tree: SysTree, hs: FakeDevice) -> None:
    hs.plug(1).child("net", "eth1")
    zero, gate = "0" * 32, "fe80" + "0" * 27 + "1"
    tree.proc(
        "net/ipv6_route",
        f"{zero} 00 {zero} 00 {gate} 00000400 00000001 00000000 00000003     eth1\n"
        f"{zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200       lo\n",
    )
    assert holders(tree) == {"1-1": "network interface eth1 with the default route"}


def test_r13_nic_below_a_bridge_and_a_bond(tree: SysTree, hs: FakeDevice) -> None:
    nic = hs.plug(1).child("net", "eth1")
    virtual = tree.sys / "devices/virtual/net"
    for upper, lower in (("br0", virtual / "bond0"), ("bond0", nic)):
        (virtual / upper).mkdir(parents=True)
        (virtual / upper / f"lower_{lower.name}").symlink_to(lower)
        (tree.sys / "class/net" / upper).symlink_to(f"../../devices/virtual/net/{upper}")
    tree.default_route("br0")
    assert holders(tree) == {"1-1": "network interface eth1 with the default route"}


def test_routes_are_not_asked_for_without_a_usb_nic(
    hs: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(self: object) -> list[str]:
        raise AssertionError("asked")

    monkeypatch.setattr(hostuse._Host, "_default_interfaces", never)
    assert holders(hs.tree) == {}


def keyboard(hs: FakeDevice, port: int, *, handler: bool) -> FakeDevice:
    device = hs.plug(port, vendor="046d", product="c31c", speed="1.5", interfaces=(KEYBOARD,))
    path = device.child("input", "input5", ("event5",))
    kbd = "sysrq kbd " if handler else ""
    sysfs = "/" + str(path.relative_to(device.tree.sys))
    text = f"I: Bus=0003\nS: Sysfs={sysfs}\nH: Handlers={kbd}event5 leds \n\n"
    with (device.tree.root / "proc/bus/input/devices").open("a") as f:
        f.write(text)
    return device


@pytest.fixture
def console(tree: SysTree) -> SysTree:
    tree.proc("bus/input/devices", "")
    tree.proc("consoles", "tty0                 -WU (EC p  )    4:7\nttyS0  -W- (E p a)  4:64\n")
    return tree


def test_console_keyboard(console: SysTree, hs: FakeDevice) -> None:
    keyboard(hs, 1, handler=True)
    keyboard(hs, 2, handler=False)
    assert holders(console) == {"1-1": "console keyboard"}


def test_keyboard_of_a_host_with_a_serial_console(console: SysTree, hs: FakeDevice) -> None:
    keyboard(hs, 1, handler=True)
    console.proc("consoles", "ttyS0                -W- (EC p a)    4:64\n")
    assert holders(console) == {}


def test_an_exported_keyboard_is_not_the_hosts(console: SysTree, hs: FakeDevice) -> None:
    keyboard(hs, 1, handler=True).bind_interface(0, None)
    assert holders(console) == {}


def test_a_loop_of_slaves_ends(tree: SysTree, disk: FakeDevice) -> None:
    first = tree.virtual_block("dm-0", "253:0", [])
    second = tree.virtual_block("dm-1", "253:1", [first])
    (first / "slaves/dm-1").symlink_to(second)
    (first / "slaves/sda1").symlink_to(tree.sys / "class/block/sda1")
    tree.mount("/", "253:1", "/dev/dm-1")
    assert holders(tree) == {"1-3": "mounted at / (sda1)"}


async def test_kernel_routes_can_be_asked_on_an_event_loop() -> None:
    assert "lo" not in hostuse._routes_of_kernel()
    assert "pyroute2" in sys.modules
