# SPDX-License-Identifier: Apache-2.0
"""When an attached device is usable: its drivers are bound and their device nodes are there.

Owns what is expected of each interface and the wait for it. Must not attach or detach, and never
fails a device for a driver that this machine lacks: what did not come is reported.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from usbdra.discovery.tree import read_device
from usbdra.errors import AttachFailed
from usbdra.types import ChildNode, UsbDevice, UsbInterface
from usbdra.vhci.waiting import Waiter, below

# Which node a driver makes: (driver, interface subclass or None for any) -> sysfs subsystem.
# Drivers that are not here make their nodes, if any, while they bind.
_NODE_OF_DRIVER: dict[tuple[str, int | None], str] = {
    ("usb-storage", None): "block",
    ("uas", None): "block",
    ("usbhid", None): "hidraw",
    ("cdc_acm", 0x02): "tty",
    ("uvcvideo", 0x01): "video4linux",
    ("snd-usb-audio", 0x01): "sound",
    ("usblp", None): "usbmisc",
}
# Interface classes that some driver of a stock kernel binds: worth waiting for its module.
_DRIVEN_CLASSES = frozenset({0x01, 0x02, 0x03, 0x07, 0x08, 0x0E})
# SCSI peripheral types that get a block device: disk, write-once, CD, optical.
_BLOCK_TYPES = frozenset({"0", "4", "5", "7"})
_MAX_DEPTH = 12


@dataclass(frozen=True, slots=True)
class SettleLimits:
    """Deadlines in seconds from the device's appearance.

    `driver`: for an interface without a driver, whose module may still be loading. `total`: for
    everything. usb-storage scans its disk only 1 s after it was bound (its `delay_use`), which
    is the kernel's own time.
    """

    driver: float = 3.0
    total: float = 10.0


@dataclass(frozen=True, slots=True)
class Settled:
    """The device with its nodes, and a sentence for each interface that is not ready."""

    device: UsbDevice
    children: tuple[ChildNode, ...]
    unsettled: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Pending:
    """An interface that is not ready. `driverless`: perhaps nothing will ever come."""

    text: str
    driverless: bool = False


async def settle(
    root: Path,
    devpath: str,
    waiter: Waiter,
    *,
    limits: SettleLimits | None = None,
    ended: asyncio.Future[Any] | None = None,
) -> Settled:
    """Wait until every interface of the device at `devpath` (no `/sys`) is usable.

    `waiter` was opened before the device appeared. Returns at the deadline with what is there.
    Raises AttachFailed when the device goes away or the link ends (`ended`).
    """
    limits = limits or SettleLimits()
    loop = asyncio.get_running_loop()
    started = loop.time()

    def all_ready() -> Settled | None:
        return _look(root, devpath, waiter, ignore_driverless=False)

    def driven_ready() -> Settled | None:
        return _look(root, devpath, waiter, ignore_driverless=True)

    for check, limit in ((all_ready, limits.driver), (driven_ready, limits.total)):
        left = max(started + limit - loop.time(), 0.0)
        done = await waiter.until(check, below(devpath), timeout=left, stop=ended)
        if done is not None:
            return done
        if ended is not None and ended.done():
            raise AttachFailed("the link ended before the device was usable")
    device, children, pending = _state(root, devpath, waiter)
    return Settled(device, children, tuple(one.text for one in pending))


def nodes_of(root: Path, syspath: str) -> tuple[ChildNode, ...]:
    """The nodes that drivers have made for the device at `syspath` (as UsbDevice has it) by now."""
    path = root / syspath.lstrip("/")
    return tuple(sorted(_nodes(path), key=lambda child: child.path))


def _look(root: Path, devpath: str, waiter: Waiter, *, ignore_driverless: bool) -> Settled | None:
    """The device, unless something is still to be waited for."""
    device, children, pending = _state(root, devpath, waiter)
    if any(not (one.driverless and ignore_driverless) for one in pending):
        return None
    return Settled(device, children, tuple(one.text for one in pending))


def _state(
    root: Path, devpath: str, waiter: Waiter
) -> tuple[UsbDevice, tuple[ChildNode, ...], list[_Pending]]:
    """Everything as it is now. Raises AttachFailed when the device is gone."""
    path = root / "sys" / devpath.lstrip("/")
    device = read_device(root, f"/sys{devpath}")
    if device is None:
        raise AttachFailed("the device went away before it was usable")
    children = nodes_of(root, f"/sys{devpath}")
    pending = []
    missing = _announced_interfaces(path) - len({i.number for i in device.interfaces})
    if device.configuration is None:
        pending.append(_Pending("the device has no configuration", waiter.is_bound(devpath)))
    elif missing > 0:
        pending.append(_Pending(f"{missing} interface(s) are not there yet"))
    for interface in device.interfaces:
        one = _pending(device, interface, children, root, devpath, waiter)
        if one is not None:
            pending.append(one)
    return device, children, pending


def _pending(
    device: UsbDevice,
    interface: UsbInterface,
    children: tuple[ChildNode, ...],
    root: Path,
    devpath: str,
    waiter: Waiter,
) -> _Pending | None:
    """What this interface still lacks; None when it is as usable as it will get."""
    name = f"{device.busid}:{device.configuration}.{interface.number}"
    if interface.driver is None:
        if interface.class_code not in _DRIVEN_CLASSES:
            return None
        return _Pending(
            f"interface {name} (class {interface.class_code:02x}) has no driver on this machine",
            driverless=True,
        )
    label = f"interface {name} ({interface.driver})"
    kind = _NODE_OF_DRIVER.get((interface.driver, None)) or _NODE_OF_DRIVER.get(
        (interface.driver, interface.subclass)
    )
    if not waiter.is_bound(f"{devpath}/{name}"):
        return _Pending(f"{label} is still binding")
    there = {child.kind for child in children if child.interface == interface.number}
    if kind is not None and kind not in there and _exists(root, kind):
        return _Pending(f"{label} has no {kind} node yet")
    if kind == "block" and _unscanned_disks(root / "sys" / devpath.lstrip("/") / name):
        return _Pending(f"{label} has further disks coming")
    return None


def _exists(root: Path, subsystem: str) -> bool:
    """False for a subsystem that this kernel is built without: nothing to wait for."""
    return subsystem != "hidraw" or (root / "sys/class/hidraw").is_dir()


def _unscanned_disks(interface: Path) -> bool:
    """A SCSI unit that will be a block device and is none yet (sd probes on its own)."""
    for kind in interface.glob("host*/target*/*/type"):
        with suppress(OSError):
            if kind.read_text().strip() in _BLOCK_TYPES and not (kind.parent / "block").is_dir():
                return True
    return False


def _announced_interfaces(path: Path) -> int:
    """`bNumInterfaces` of the active configuration, 0 while there is none."""
    try:
        return int((path / "bNumInterfaces").read_text() or "0")
    except (OSError, ValueError):
        return 0


def _nodes(path: Path) -> Iterator[ChildNode]:
    """Every device below the interfaces that has a node in /dev."""
    with suppress(OSError):
        for entry in sorted(os.listdir(path)):
            _, colon, setting = entry.partition(":")
            number = setting.rpartition(".")[2]
            if colon and number.isdecimal():
                yield from _nodes_below(path / entry, int(number), _MAX_DEPTH)


def _nodes_below(path: Path, interface: int, depth: int) -> Iterator[ChildNode]:
    node = _node(path, interface)
    if node is not None:
        yield node
    if depth:
        with suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _nodes_below(Path(entry.path), interface, depth - 1)


def _node(path: Path, interface: int) -> ChildNode | None:
    """The node of one device, from its `uevent` file: MAJOR, MINOR, DEVNAME."""
    if not (path / "dev").exists():
        return None
    try:
        kind = os.readlink(path / "subsystem").rpartition("/")[2]
        lines = (path / "uevent").read_text().splitlines()
        values = dict(line.split("=", 1) for line in lines if "=" in line)
        return ChildNode(
            kind=kind,
            path=f"/dev/{values['DEVNAME']}",
            major=int(values["MAJOR"]),
            minor=int(values["MINOR"]),
            interface=interface,
        )
    except (OSError, ValueError, KeyError):  # it goes away while we look
        return None
