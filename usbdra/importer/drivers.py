# SPDX-License-Identifier: Apache-2.0
"""Keeps this host's own drivers off a device that is for a virtual machine, and gives them back.

Owns the two acts on the interfaces of one device; the caller writes down what is taken before it
is taken. The kernel binds drivers as soon as interfaces appear (there is no switch for a single
device), so they are unbound right after: nothing may be mounted or opened in between by anyone
who waits for the claim's own nodes. Everything here blocks for as long as drivers take.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from usbdra._native import stub
from usbdra.errors import AttachFailed, DriverNotRestored
from usbdra.types import BusId, UsbDevice

_BUS = "sys/bus/usb"
_GONE = (errno.ENODEV, errno.ENOENT)


class DriverFiles(Protocol):
    """What we need of `_native.stub`: one write to a driver's `bind` or `unbind`."""

    def bind(self, driver_dir: bytes, interface: bytes, /) -> None: ...  # noqa: D102
    def unbind(self, driver_dir: bytes, interface: bytes, /) -> None: ...  # noqa: D102


KERNEL: DriverFiles = stub


def interface_drivers(device: UsbDevice) -> dict[str, str]:
    """The device's interfaces that have a driver (`1-3:1.0`), in order, and which."""
    return {
        f"{device.busid}:{device.configuration}.{interface.number}": interface.driver
        for interface in device.interfaces
        if interface.driver is not None
    }


def busid_of(drivers: Mapping[str, str]) -> BusId | None:
    """The device whose interfaces these are; None for none."""
    return next((BusId(name.partition(":")[0]) for name in drivers), None)


def keep_off(root: Path, drivers: Mapping[str, str], files: DriverFiles = KERNEL) -> None:
    """Unbind these drivers from their interfaces; one that went by itself is no error.

    Raises AttachFailed naming the driver that does not let go.
    """
    for interface, driver in drivers.items():
        try:
            files.unbind(_driver(root, driver), interface.encode())
        except OSError as error:
            if error.errno not in _GONE:
                raise AttachFailed(
                    f"driver {driver} does not let go of {interface}: {error}"
                ) from error


def give_back(root: Path, drivers: Mapping[str, str], files: DriverFiles = KERNEL) -> None:
    """Bind these drivers to their interfaces again, as far as both are still there.

    One driver may take several interfaces at once, so what has a driver is left alone. Raises
    DriverNotRestored naming the interfaces that stay without.
    """
    missing = {}
    for interface, driver in drivers.items():
        if not _lacks(root, interface, driver):
            continue
        try:
            files.bind(_driver(root, driver), interface.encode())
        except OSError as error:
            missing[interface] = error
    missing = {name: e for name, e in missing.items() if _lacks(root, name, drivers[name])}
    if missing:
        raise DriverNotRestored(
            f"{', '.join(missing)} got no driver again ({next(iter(missing.values()))}); "
            "replug the device"
        )


def _lacks(root: Path, interface: str, driver: str) -> bool:
    """The interface is there without a driver, and the driver is loaded."""
    there = root / _BUS / "devices" / interface
    loaded = (root / _BUS / "drivers" / driver).exists()
    return loaded and there.exists() and not (there / "driver").exists()


def _driver(root: Path, driver: str) -> bytes:
    return os.fsencode(root / _BUS / "drivers" / driver)
