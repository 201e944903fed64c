# SPDX-License-Identifier: Apache-2.0
"""What sysfs says of a device that is bound, about to be bound, or given back.

Owns reading: who drives the device and its interfaces, and what stands in `match_busid`. Must
not write. Paths are below `root`, which is `/` on a real machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from usbdra.types import BusId

DEVICES = "sys/bus/usb/devices"
DRIVERS = "sys/bus/usb/drivers"


@dataclass(frozen=True, slots=True)
class BoundDevice:
    """A device and its drivers. `identity` is `vendor:product:serial`, the serial in hex.

    `devid` is bus << 16 | device number, which changes at every replug. `drivers` maps interfaces
    that have a driver (`1-3:1.0`) to it.
    """

    busid: BusId
    identity: str
    devid: int
    driver: str | None
    drivers: Mapping[str, str]


def read(root: Path, busid: BusId) -> BoundDevice | None:
    """The device on this bus id; None when there is none, or it goes away meanwhile."""
    path = directory(root, busid)
    try:
        vendor = (path / "idVendor").read_bytes().strip()
        product = (path / "idProduct").read_bytes().strip()
        devid = int((path / "busnum").read_bytes()) << 16 | int((path / "devnum").read_bytes())
        serial = _optional(path / "serial").removesuffix(b"\n")
        identity = f"{vendor.decode()}:{product.decode()}:{serial.hex()}"
        drivers = {
            name: driver
            for name in interfaces(path, busid)
            if (driver := driver_of(path / name)) is not None
        }
    except (OSError, ValueError):
        return None
    return BoundDevice(busid, identity, devid, driver_of(path), drivers)


def directory(root: Path, busid: BusId) -> Path:
    """The device's directory, by its link in the bus."""
    return root / DEVICES / busid


def driver_directory(root: Path, driver: str) -> Path:
    """The directory of a driver of the USB bus."""
    return root / DRIVERS / driver


def devpath(root: Path, busid: BusId) -> str | None:
    """The device's path as uevents spell it; None when it is gone."""
    try:
        real = directory(root, busid).resolve(strict=True)
    except OSError:
        return None
    return "/" + str(real.relative_to((root / "sys").resolve()))


def interfaces(path: Path, busid: BusId) -> list[str]:
    """Names of the interfaces that the device has now; none while it is unconfigured."""
    return sorted(name for name in os.listdir(path) if name.startswith(f"{busid}:"))


def driver_of(path: Path) -> str | None:
    """The name of the driver bound to this device or interface."""
    try:
        return os.readlink(path / "driver").rpartition("/")[2]
    except OSError:
        return None


def match_entries(driver: Path) -> list[str]:
    """The bus ids in usbip-host's `match_busid`; empty when it cannot be read."""
    return _optional(driver / "match_busid").decode("ascii", "replace").split()


def missing_drivers(root: Path, busid: BusId, wanted: Iterable[str], stub: str) -> list[str]:
    """The device, or those of the `wanted` interfaces, that have no driver of their own (again).

    An interface that no longer exists is missing only when the device has none at all: another
    configuration names its interfaces otherwise. A device that is gone misses nothing.
    """
    path = directory(root, busid)
    try:
        present = interfaces(path, busid)
    except OSError:
        return []
    if driver_of(path) in (None, stub):
        return [busid]
    names = sorted(wanted)
    if names and not present:
        return names
    return [name for name in names if name in present and driver_of(path / name) is None]


def _optional(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
