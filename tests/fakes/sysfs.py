# SPDX-License-Identifier: Apache-2.0
"""A sysfs, /dev and /proc of a made-up machine, laid out as the kernel lays out the real ones.

Real directories live under `sys/devices`, everything else is relative symlinks to them, so code
that resolves links sees what it would see on a machine. The tree does not react to writes; that
is `tests/fakes/kernel.py`. Example:

    tree = SysTree(tmp_path)
    hs = tree.controller("0000:00:14.0").root_hub(bus=1)              # usb1, 480
    hub = hs.hub(1)                                                   # 1-1
    stick = hub.plug(4, vendor="0781", product="5581", serial=b"4C5300",
                     interfaces=(STORAGE,))                           # 1-1.4
    stick.child("block", "sda", ("sda1",))
    tree.mount("/data", "8:1", "/dev/sda1")
    tree.vhci().plug(port=0, vendor="10c4", product="ea60")           # imported: 2-1
    stick.unplug()

Every attribute can be replaced by any bytes (`device.write("serial", b"A\\x01")`), removed, or
made to fail with EIO (`device.break_("speed")`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

from tests.fakes.descriptors import KEYBOARD, SERIAL, STORAGE, Endpoint, Interface
from tests.fakes.sysfs_device import Controller, FakeDevice
from tests.fakes.sysfs_nodes import link
from tests.fakes.sysfs_vhci import Vhci

__all__ = [
    "KEYBOARD",
    "SERIAL",
    "STORAGE",
    "Controller",
    "Endpoint",
    "FakeDevice",
    "Interface",
    "SysTree",
    "Vhci",
]


class SysTree:
    """`root` is what `--root` takes. Nothing but the empty skeleton exists at first. `lock` is
    held by who walks over links and removes some: threads of the product write to the kernels."""

    def __init__(self, root: Path) -> None:
        self.lock = threading.RLock()
        self.root = root
        self.sys = root / "sys"
        for name in ("bus/usb/devices", "bus/usb/drivers", "devices/platform", "dev/char"):
            (self.sys / name).mkdir(parents=True, exist_ok=True)
        (root / "dev/bus/usb").mkdir(parents=True, exist_ok=True)
        (root / "proc/self").mkdir(parents=True, exist_ok=True)
        (root / "proc/self/mountinfo").write_text("")
        (root / "proc/swaps").write_text("Filename\t\t\t\tType\t\tSize\tUsed\tPriority\n")
        self._mounts = 0
        self.devnums: dict[int, int] = {}

    def controller(self, name: str = "0000:00:14.0") -> Controller:
        """A PCI controller by address, or a platform one (`dummy_hcd.0`) by name."""
        pci = name.count(":") == 2
        base = self.sys / "devices" / ("pci0000:00" if pci else "platform")
        return Controller(self, base / name)

    def vhci(
        self, controllers: int = 1, *, high: int = 8, super_: int = 8, first_bus: int = 2
    ) -> Vhci:
        """vhci_hcd.0 .. with all ports free in today's layout (S1, S2) and both root hubs of
        each; `Vhci.status` then writes any other text."""
        return Vhci(self, controllers, high, super_, first_bus)

    def driver(self, name: str) -> Path:
        """The directory `sys/bus/usb/drivers/NAME` with the files that drivers have."""
        path = self.sys / "bus/usb/drivers" / name
        if not path.exists():
            path.mkdir()
            for file in ("bind", "unbind", "uevent"):
                (path / file).write_text("")
        return path

    def usbip_host(self) -> Path:
        """The driver directory of usbip-host with its `match_busid` and `rebind`."""
        path = self.driver("usbip-host")
        (path / "match_busid").write_text("")
        (path / "rebind").write_text("")
        return path

    def proc(self, name: str, text: str) -> None:
        path = self.root / "proc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def mount(self, point: str, dev: str, source: str, fstype: str = "ext4") -> None:
        """One line more in proc/self/mountinfo; `dev` is MAJOR:MINOR."""
        self._mounts += 1
        with (self.root / "proc/self/mountinfo").open("a") as f:
            f.write(f"{self._mounts} 1 {dev} / {point} rw - {fstype} {source} rw\n")

    def swap(self, source: str) -> None:
        with (self.root / "proc/swaps").open("a") as f:
            f.write(f"{source}                 partition\t1048572\t0\t-2\n")

    def virtual_block(self, name: str, dev: str, slaves: Iterable[Path]) -> Path:
        """A dm or md device on top of the block directories in `slaves`."""
        path = self.sys / "devices/virtual/block" / name
        (path / "slaves").mkdir(parents=True)
        (path / "holders").mkdir()
        (path / "dev").write_text(f"{dev}\n")
        self.block_links(path, dev)
        for slave in slaves:
            link(path / "slaves" / slave.name, slave)
            link(slave / "holders" / name, path)
        return path

    def default_route(self, interface: str) -> None:
        """An IPv4 default route in proc/net/route."""
        self.proc(
            "net/route",
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
            f"{interface}\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
            f"{interface}\t0000000A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n",
        )

    def next_devnum(self, bus: int) -> int:
        """Numbers count up per bus and are not used again, as on a machine (till 127)."""
        return self.devnums.get(bus, 0) + 1

    def block_links(self, path: Path, dev: str, *, disk: bool = True) -> None:
        link(self.sys / "class/block" / path.name, path)
        link(self.sys / "dev/block" / dev, path)
        if disk:
            link(self.sys / "block" / path.name, path)
