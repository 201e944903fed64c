# SPDX-License-Identifier: Apache-2.0
"""What the host itself uses: mounted disks, swap, the way out to the network, the console.

Owns the answer "who on this host holds this device" for every device of a tree. Reads only;
what to do with a used device is policy. Sources below any root:

- block: `proc/1/mountinfo` (the host's own mounts when we run in a container of the host's
  process namespace), `proc/self/mountinfo`, `proc/swaps`, `sys/fs/btrfs`, and from a used
  volume down to its disks through sysfs `slaves` (device mapper, md);
- network: default routes, by netlink on the real machine and from `proc/net` elsewhere, asked
  only when a USB network interface exists; bridges, bonds and VLANs are followed downwards;
- console: a boot-protocol keyboard (class 03/01/01) held by usbhid, with a VT keyboard handler
  on its input device, while `proc/consoles` lists a VT (`tty0` and the like).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from usbdra.discovery import tree
from usbdra.discovery.policy import CONSOLE_KEYBOARD, is_candidate
from usbdra.types import BusId, UsbDevice

if TYPE_CHECKING:
    from pathlib import Path

_USB_DEVICE = re.compile(r"[0-9]+-[0-9]+(\.[0-9]+)*")
_VT = re.compile(r"tty[0-9]+\s")
_OCTAL = re.compile(r"\\([0-7]{3})")
_MAX_DEPTH = 16
"""Stacked volumes or interfaces deeper than this are cut: a loop in a broken tree must end."""


def find_holders(root: str | Path, devices: Iterable[UsbDevice]) -> dict[BusId, str]:
    """Which of `devices` the host uses: busid -> holder, such as `mounted at / (sda2)`.

    The first use found names it: disks, then network, then keyboard. Files that are absent
    mean no use; nothing is raised for them.
    """
    candidates = {d.busid: d for d in devices if is_candidate(d)}
    host = _Host(str(root).rstrip("/"), candidates)
    holders: dict[BusId, str] = {}
    for found in (host.block_uses(), host.network_uses(), host.console_uses()):
        for busid, text in found:
            holders.setdefault(BusId(busid), text)
    return holders


def holder_of(root: str | Path, busid: BusId) -> str | None:
    """What of the host uses this device now; None when nothing does, or there is no such device.

    Reads that one device and what can concern it, not the tree.
    """
    device = tree.device_at(root, busid)
    return find_holders(root, [device]).get(busid) if device is not None else None


class _Host:
    """One look at a machine's use of some devices; what cannot concern them is not read."""

    def __init__(self, prefix: str, candidates: dict[BusId, UsbDevice]) -> None:
        self.prefix = prefix
        self.candidates = candidates

    # Block devices.

    def block_uses(self) -> Iterator[tuple[str, str]]:
        blocks = self._usb_owned("block") | self._usb_owned("class/block")
        if not blocks:
            return
        for volume, use in self._used_volumes():
            for block in self._lower(f"{self.prefix}/sys/class/block", volume, "slaves"):
                busid = blocks.get(block) or blocks.get(_whole_disk(block, blocks))
                if busid is not None:
                    yield busid, f"{use} ({block})"

    def _used_volumes(self) -> Iterator[tuple[str, str]]:
        """(kernel name of a block device, how it is used)."""
        seen: set[tuple[str, str]] = set()
        for file in ("proc/1/mountinfo", "proc/self/mountinfo"):
            for line in self._lines(file):
                fields = line.split(" ")
                if len(fields) < 10 or "-" not in fields:
                    continue
                source = fields[fields.index("-") + 2 :][:1]
                volume = self._by_number(fields[2]) or self._by_node("".join(source))
                key = (volume or "", fields[4])
                if volume is not None and key not in seen:
                    seen.add(key)
                    yield volume, f"mounted at {_unescape(fields[4])}"
        for line in self._lines("proc/swaps")[1:]:
            volume = self._by_node(line.split(" ", 1)[0].split("\t", 1)[0])
            if volume is not None:
                yield volume, "swap"
        # A btrfs of several disks names one of them in mountinfo; here are all of them.
        for filesystem in self._names("sys/fs/btrfs"):
            for volume in self._names(f"sys/fs/btrfs/{filesystem}/devices"):
                yield volume, f"part of the mounted btrfs {filesystem}"

    def _by_number(self, number: str) -> str | None:
        """`8:1` -> `sda1`."""
        try:
            return os.readlink(f"{self.prefix}/sys/dev/block/{number}").rpartition("/")[2]
        except OSError:
            return None

    def _by_node(self, node: str) -> str | None:
        """`/dev/mapper/root` -> `dm-0`, `/dev/sda1` -> `sda1`."""
        if not node.startswith("/dev/"):
            return None
        path = _unescape(node)
        try:
            return os.readlink(self.prefix + path).rpartition("/")[2]
        except OSError:
            return path.rpartition("/")[2]

    # Network interfaces.

    def network_uses(self) -> Iterator[tuple[str, str]]:
        usb = self._usb_owned("class/net")
        if not usb:
            return
        for interface in self._default_interfaces():
            for name in self._lower(f"{self.prefix}/sys/class/net", interface, "lower_"):
                if name in usb:
                    yield usb[name], f"network interface {name} with the default route"

    def _default_interfaces(self) -> list[str]:
        return self._routes_of_files() if self.prefix else _routes_of_kernel()

    def _routes_of_files(self) -> list[str]:
        found = []
        for line in self._lines("proc/net/route")[1:]:
            fields = line.split()
            if len(fields) > 7 and fields[1] == "00000000" and fields[7] == "00000000":
                found.append(fields[0])
        for line in self._lines("proc/net/ipv6_route"):
            fields = line.split()
            # `lo` carries the kernel's own unreachable default.
            if len(fields) > 9 and fields[0] == "0" * 32 and fields[1] == "00":
                found.append(fields[9])
        return [name for name in dict.fromkeys(found) if name != "lo"]

    # The console keyboard.

    def console_uses(self) -> Iterator[tuple[str, str]]:
        keyboards = [d for d in self.candidates.values() if _is_host_keyboard(d)]
        if not keyboards or not any(_VT.match(line) for line in self._lines("proc/consoles")):
            return
        attached = {busid for busid in self._kbd_handlers() if busid is not None}
        for device in keyboards:
            if device.busid in attached:
                yield device.busid, CONSOLE_KEYBOARD

    def _kbd_handlers(self) -> Iterator[str | None]:
        """Busids of the USB devices whose input device the VT keyboard handler has opened."""
        path = ""
        for line in self._lines("proc/bus/input/devices"):
            if line.startswith("S: Sysfs="):
                path = line.removeprefix("S: Sysfs=")
            elif line.startswith("H: Handlers=") and "kbd" in line[12:].split():
                yield _usb_owner(path)

    # Shared.

    def _usb_owned(self, directory: str) -> dict[str, str]:
        """Entries of a sysfs class directory that live below a candidate, with its busid."""
        owned = {}
        for name in self._names(f"sys/{directory}"):
            path = self._real(f"{directory}/{name}")
            busid = _usb_owner(path) if path is not None else None
            if busid in self.candidates:
                owned[name] = str(busid)
        return owned

    def _lower(self, directory: str, name: str, below: str) -> Iterator[str]:
        """`name` and everything it is built on, each once: sysfs `slaves/` or `lower_*`."""
        waiting, seen = [(name, 0)], {name}
        while waiting:
            current, depth = waiting.pop()
            yield current
            if depth < _MAX_DEPTH:
                for lower in _built_on(f"{directory}/{current}", below):
                    if lower not in seen:
                        seen.add(lower)
                        waiting.append((lower, depth + 1))

    def _real(self, entry: str) -> str | None:
        try:
            return os.path.normpath(f"/sys/{entry}/../{os.readlink(f'{self.prefix}/sys/{entry}')}")
        except OSError:
            return None

    def _names(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(f"{self.prefix}/{directory}"))
        except OSError:
            return []

    def _lines(self, file: str) -> list[str]:
        try:
            with open(f"{self.prefix}/{file}", encoding="utf-8", errors="surrogateescape") as f:
                return f.read().splitlines()
        except OSError:
            return []


def _built_on(path: str, below: str) -> list[str]:
    try:
        if below == "slaves":
            return sorted(os.listdir(f"{path}/slaves"))
        names = [n for n in os.listdir(path) if n.startswith(below)]
    except OSError:
        return []
    return sorted(n.removeprefix(below) for n in names)


def _whole_disk(partition: str, disks: Iterable[str]) -> str:
    """`sda1` -> `sda` by name alone, for a tree that lists whole disks only (`sys/block`)."""
    return next((d for d in disks if re.fullmatch(re.escape(d) + "p?[0-9]+", partition)), partition)


def _is_host_keyboard(device: UsbDevice) -> bool:
    return any(
        (i.class_code, i.subclass, i.protocol) == (3, 1, 1) and i.driver == "usbhid"
        for i in device.interfaces
    )


def _usb_owner(path: str) -> str | None:
    """The busid of the USB device nearest above a sysfs path, or None."""
    for part in reversed(path.split("/")):
        if _USB_DEVICE.fullmatch(part):
            return part
    return None


def _unescape(text: str) -> str:
    """mountinfo writes blanks as `\\040` (fs/proc_namespace.c `mangle`)."""
    return _OCTAL.sub(lambda m: chr(int(m[1], 8)), text)


def _routes_of_kernel() -> list[str]:
    """Interfaces of default routes, IPv4 and IPv6, main table, over netlink.

    In a thread of its own: pyroute2 runs an event loop inside, and the caller may have one.
    """
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(_ask_kernel_for_routes).result()


def _ask_kernel_for_routes() -> list[str]:
    import socket

    from pyroute2 import IPRoute

    with IPRoute() as netlink:
        names = {link["index"]: link.get("IFLA_IFNAME") for link in netlink.get_links()}
        found: list[str] = []
        for family in (socket.AF_INET, socket.AF_INET6):
            for route in netlink.get_default_routes(family=family):
                hops = route.get("RTA_MULTIPATH") or []
                indexes = [route.get("RTA_OIF"), *(hop["oif"] for hop in hops)]
                found += [names[i] for i in indexes if i in names]
    return [name for name in dict.fromkeys(found) if name != "lo"]
