# SPDX-License-Identifier: Apache-2.0
"""Reads USB devices from sysfs below any root.

Owns the way from a sysfs directory to a `UsbDevice`, and the list of such directories, from
`sys/bus/usb/devices`. Must not name devices or judge them, and writes nothing but `poke`.

Nothing of a hub that takes its lock is read (texts and configuration, on 6.1 also descriptors:
drivers/usb/core/sysfs.c): the kernel holds the lock while a device below is enumerated, and for
as long as the link lives when that device is imported and its peer does not answer. Hubs are not
offered; nobody misses it. libudev's enumeration reads `uevent` of each device, which takes the
lock on 6.1; so the directory is listed instead.

Attribute texts: Documentation/ABI/testing/sysfs-bus-usb, drivers/usb/core/sysfs.c. One device
costs one open directory and three calls an attribute; there is no second look at anything.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from usbdra._native import sysfs
from usbdra.discovery import descriptors, names
from usbdra.discovery.policy import EXPORT_DRIVER
from usbdra.types import BusId, Speed, UsbDevice, UsbInterface

if TYPE_CHECKING:
    from pathlib import Path

DEVICES_DIR = "/sys/bus/usb/devices"

_DEVICE_NAME = re.compile(r"usb[0-9]+|[0-9]+-[0-9]+(\.[0-9]+)*")
_INTERFACE_NAME = re.compile(r"[0-9]+-[0-9]+(\.[0-9]+)*:[0-9]+\.[0-9]+")
_HEX4 = re.compile(r"[0-9a-f]{4}")
_IMPORTED = "/sys/devices/platform/vhci_hcd"
_SUPER_SPEED = 5000.0
_HUB = 0x09  # bDeviceClass, USB 2.0 section 11.23.1


@dataclass(frozen=True, slots=True)
class Reading:
    """A device as read. `complete` is False while the kernel or udev still adds to it: the
    serial that its descriptor announces, or its node in /dev, is not there yet."""

    device: UsbDevice
    complete: bool


@dataclass(frozen=True, slots=True)
class Enumeration:
    """Everything found; `skipped` maps busid to why a device could not be read."""

    readings: tuple[Reading, ...]
    skipped: dict[str, str]


def normal_root(root: str | Path) -> str:
    """The prefix to put before `/sys/...`: empty for the real machine."""
    return str(root).rstrip("/")


def is_device_name(name: str) -> bool:
    """True for `usb1` and `1-1.4`, False for an interface such as `1-1.4:1.0`."""
    return _DEVICE_NAME.fullmatch(name) is not None


def read_device(root: str | Path, syspath: str) -> UsbDevice | None:
    """The device whose real path below `root` is `syspath`; None when it cannot be read."""
    try:
        return read(root, syspath).device
    except (OSError, ValueError):
        return None


def device_at(root: str | Path, busid: BusId) -> UsbDevice | None:
    """The device of this bus id now; None when there is none or it cannot be read."""
    prefix = normal_root(root)
    try:  # also without `strict`, a link that goes between the two looks at it would raise
        real = os.path.realpath(f"{prefix}/sys/bus/usb/devices/{busid}", strict=True)
    except OSError:
        return None
    return read_device(root, f"/{os.path.relpath(real, os.path.realpath(prefix or '/'))}")


def enumerate_devices(root: str | Path) -> Enumeration:
    """Read every USB device, hubs and imported ones included, in order of syspath.

    A device that vanishes or fails meanwhile (ENODEV, ENOENT, EIO) is skipped, never the rest.
    """
    prefix = normal_root(root)
    roots: RootHubs = {}
    readings: list[Reading] = []
    skipped: dict[str, str] = {}
    for syspath in sorted(list_syspaths(prefix)):
        try:
            readings.append(read(prefix, syspath, roots))
        except (OSError, ValueError) as error:
            skipped[syspath.rpartition("/")[2]] = str(error)
    return Enumeration(tuple(readings), skipped)


def list_syspaths(root: str | Path) -> list[str]:
    """Real paths (`/sys/devices/...`) of the devices in `sys/bus/usb/devices`, unread.

    Empty when there is no such directory: a machine without USB.
    """
    prefix = normal_root(root)
    try:
        entries = os.listdir(prefix + DEVICES_DIR)
    except FileNotFoundError:
        return []
    paths = (_resolve(prefix, name) for name in entries if is_device_name(name))
    return [path for path in paths if path is not None]


def poke(root: str | Path = "/") -> None:
    """Have the kernel send one `change` event of the USB bus itself: nothing reacts to it but
    who tests that events arrive (drivers/base/bus.c `bus_uevent_store`). Raises OSError."""
    sysfs.write(f"{normal_root(root)}/sys/bus/usb/uevent".encode(), b"change")


RootHubs = dict[str, dict[str, bool]]
"""Per controller directory: root hub -> is it 5 Gbit/s or more. Good for one enumeration."""


def read(root: str | Path, syspath: str, roots: RootHubs | None = None) -> Reading:
    """Read one device. Raises OSError when it is gone or fails, ValueError for senseless text."""
    prefix = normal_root(root)
    directory = os.open(prefix + syspath, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _Reader(prefix, syspath, directory).read({} if roots is None else roots)
    finally:
        os.close(directory)


class _Reader:
    """One device's directory while it is open."""

    def __init__(self, prefix: str, syspath: str, directory: int) -> None:
        self.prefix = prefix
        self.syspath = syspath
        self.busid = syspath.rpartition("/")[2]
        self.directory = directory

    def read(self, roots: RootHubs) -> Reading:
        vendor = self._hex4("idVendor")
        class_code = self._number("bDeviceClass", 16)
        locked = (lambda *name: None) if class_code == _HUB else self._optional
        serial_raw = locked("serial")
        summary = descriptors.parse(
            locked("descriptors", descriptors.MAX_BYTES - 17) or b"",
        )
        major, minor = self._major_minor()
        configuration = (locked("bConfigurationValue") or b"").strip()
        driver = self._link_name("driver")
        device = UsbDevice(
            busid=BusId(self.busid),
            syspath=self.syspath,
            busnum=self._number("busnum"),
            devnum=self._number("devnum"),
            vendor_id=vendor,
            bcd=self._text("bcdDevice") or "0000",
            manufacturer=_clean(locked("manufacturer")),
            product=_clean(locked("product")),
            serial=_clean(serial_raw),
            serial_raw=None if serial_raw is None else serial_raw.removesuffix(b"\n"),
            class_code=class_code,
            subclass=self._number("bDeviceSubClass", 16, default="0"),
            protocol=self._number("bDeviceProtocol", 16, default="0"),
            speed=Speed.from_sysfs(self._text("speed")),
            port_path=self._port_path(roots),
            interfaces=self._interfaces() or _told_interfaces(driver, summary),
            isochronous=summary.isochronous,
            driver=driver,
            authorized=self._text("authorized") in ("1", ""),
            configuration=int(configuration) if configuration else None,
            imported=self.syspath.startswith(_IMPORTED),
            major=major,
            minor=minor,
            # Last, because it must be there: a device that went away half-way fails here and
            # is not taken for one without serial, speed or interfaces.
            product_id=self._hex4("idProduct"),
        )
        announced = class_code == _HUB or summary.serial_index == 0 or serial_raw is not None
        return Reading(device, announced and self._has_node(device))

    def _has_node(self, device: UsbDevice) -> bool:
        """True when the node exists, or nobody makes nodes for this bus at all."""
        node = self.prefix + device.node_path
        return os.path.exists(node) or not os.path.isdir(os.path.dirname(node))

    def _interfaces(self) -> tuple[UsbInterface, ...]:
        found = []
        for name in sorted(os.listdir(self.directory)):
            if _INTERFACE_NAME.fullmatch(name):
                interface = self._interface(name)
                if interface is not None:
                    found.append(interface)
        return tuple(sorted(found, key=lambda i: i.number))

    def _interface(self, name: str) -> UsbInterface | None:
        """None for an interface that goes away meanwhile: a configuration change, no failure."""
        try:
            return UsbInterface(
                number=self._number(f"{name}/bInterfaceNumber", 16),
                class_code=self._number(f"{name}/bInterfaceClass", 16),
                subclass=self._number(f"{name}/bInterfaceSubClass", 16),
                protocol=self._number(f"{name}/bInterfaceProtocol", 16),
                driver=self._link_name(f"{name}/driver"),
            )
        except FileNotFoundError:
            return None

    def _port_path(self, roots: RootHubs) -> str:
        place = names.place_of(self.syspath)
        if place is None:
            return f"bus-{self.busid}"
        if place.controller not in roots:
            roots[place.controller] = _root_hubs(self.prefix + place.controller)
        label = names.root_hub_label(place.root_hub, roots[place.controller])
        return names.port_path(names.controller_name(place.controller), label, place.chain)

    def _major_minor(self) -> tuple[int | None, int | None]:
        major, colon, minor = self._text("dev").partition(":")
        return (int(major), int(minor)) if colon else (None, None)

    def _hex4(self, name: str) -> str:
        text = self._required(name).lower()
        if not _HEX4.fullmatch(text):
            raise ValueError(f"{self.busid}/{name} is not four hex digits: {text[:20]!r}")
        return text

    def _number(self, name: str, base: int = 10, *, default: str | None = None) -> int:
        text = self._required(name) if default is None else self._text(name) or default
        try:
            return int(text, base)
        except ValueError:
            raise ValueError(f"{self.busid}/{name} is not a number: {text[:20]!r}") from None

    def _required(self, name: str) -> str:
        return sysfs.read_at(self.directory, name.encode()).decode("utf-8", "replace").strip()

    def _text(self, name: str) -> str:
        """As `_required`, but an absent file reads as empty."""
        raw = self._optional(name)
        return "" if raw is None else raw.decode("utf-8", "replace").strip()

    def _optional(self, name: str, limit: int = 4096) -> bytes | None:
        try:
            return sysfs.read_at(self.directory, name.encode(), limit)
        except FileNotFoundError:
            return None

    def _link_name(self, name: str) -> str | None:
        try:
            return os.readlink(name, dir_fd=self.directory).rpartition("/")[2]
        except FileNotFoundError:
            return None


def _told_interfaces(
    driver: str | None, summary: descriptors.DescriptorSummary
) -> tuple[UsbInterface, ...]:
    """Interfaces of an exported device, from its descriptors.

    Leaving the generic driver unconfigures a device (drivers/usb/core/generic.c
    `usb_generic_driver_disconnect`), so sysfs lists no interfaces while usbip-host has it. It is
    the same device all the time and keeps its attributes.
    """
    if driver != EXPORT_DRIVER:
        return ()
    return tuple(UsbInterface(*told, driver=None) for told in summary.interfaces)


def _root_hubs(controller: str) -> dict[str, bool]:
    """The root hubs of a controller and whether each is of 5 Gbit/s or more."""
    return {
        name: _is_super(f"{controller}/{name}/speed")
        for name in os.listdir(controller)
        if name.startswith("usb") and name[3:].isdigit()
    }


def _is_super(speed_file: str) -> bool:
    try:
        return float(sysfs.read(speed_file.encode())) >= _SUPER_SPEED
    except (OSError, ValueError):
        return False


def _clean(raw: bytes | None) -> str | None:
    """A device's own text for people: what cannot be shown (control characters, bytes that are
    no UTF-8) becomes U+FFFD, so it can neither break a terminal nor an API object."""
    if raw is None:
        return None
    text = raw.decode("utf-8", "replace").strip()
    return "".join(c if c.isprintable() else "\ufffd" for c in text) or None


def _resolve(prefix: str, name: str) -> str | None:
    """The real path below the root of an entry of the bus directory, read from its link alone.

    None for an entry that is gone or points out of the root.
    """
    try:
        target = os.readlink(f"{prefix}{DEVICES_DIR}/{name}")
    except FileNotFoundError:
        return None
    except OSError:  # EINVAL: a directory in place of a link, as in hand-made trees
        return f"{DEVICES_DIR}/{name}"
    path = os.path.normpath(os.path.join(DEVICES_DIR, target))
    path = path.removeprefix(prefix)
    return path if path.startswith("/sys/") else None
