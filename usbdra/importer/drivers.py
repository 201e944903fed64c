# SPDX-License-Identifier: Apache-2.0
"""Keeps this host's own drivers off a device that is for a virtual machine.

Owns one act. The kernel binds drivers as soon as the interfaces appear (there is no switch for a
single device), so they are unbound right after: nothing may be mounted or opened in between by
anyone who waits for the claim's own nodes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from usbdra._native import stub
from usbdra.errors import AttachFailed
from usbdra.types import UsbDevice

Unbind = Callable[[bytes, bytes], None]


def unbind_interfaces(root: Path, device: UsbDevice, unbind: Unbind = stub.unbind) -> None:
    """Unbind every interface driver of the device; one that went by itself is no error.

    Raises AttachFailed naming the driver that does not let go.
    """
    for interface in device.interfaces:
        if interface.driver is None:
            continue
        name = f"{device.busid}:{device.configuration}.{interface.number}"
        driver = root / "sys/bus/usb/drivers" / interface.driver
        try:
            unbind(os.fsencode(driver), name.encode())
        except OSError as error:
            if error.errno not in (errno.ENODEV, errno.ENOENT):
                raise AttachFailed(
                    f"driver {interface.driver} does not let go of {name}: {error}"
                ) from error
