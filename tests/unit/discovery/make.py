# SPDX-License-Identifier: Apache-2.0
"""Builds `UsbDevice` values for tests of pure modules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from usbdra.types import BusId, Speed, UsbDevice, UsbInterface

STICK = UsbDevice(
    busid=BusId("1-4"),
    syspath="/sys/devices/pci0000:00/0000:00:14.0/usb1/1-4",
    busnum=1,
    devnum=5,
    vendor_id="0781",
    product_id="5581",
    bcd="0100",
    manufacturer="ACME",
    product="Thing",
    serial="4C5300",
    serial_raw=b"4C5300",
    class_code=0,
    subclass=0,
    protocol=0,
    speed=Speed.HIGH,
    port_path="pci-0000:00:14.0-usb2-0:4",
    interfaces=(UsbInterface(0, 8, 6, 80, "usb-storage"),),
    isochronous=False,
    driver="usb",
    authorized=True,
    configuration=1,
    imported=False,
    major=189,
    minor=4,
)


def device(serial: bytes | None = b"4C5300", *, port: str = "4", **changes: Any) -> UsbDevice:
    """A stick with this raw serial at port chain `port` of bus 1."""
    return replace(
        STICK,
        busid=BusId(f"1-{port}"),
        syspath=f"/sys/devices/pci0000:00/0000:00:14.0/usb1/1-{port}",
        port_path=f"pci-0000:00:14.0-usb2-0:{port}",
        serial_raw=serial,
        serial=None if serial is None else serial.decode("utf-8", "replace"),
        **changes,
    )
