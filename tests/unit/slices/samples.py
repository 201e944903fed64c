# SPDX-License-Identifier: Apache-2.0
"""Offers for the slice and view tests: plain devices with one field changed at a time."""

from __future__ import annotations

from typing import Any

from usbdra.types import BusId, DeviceName, Offer, Speed, UsbDevice, UsbInterface


def device(busid: str = "1-1.4", **changes: Any) -> UsbDevice:
    """A mass storage stick at 480 Mbit/s."""
    fields: dict[str, Any] = {
        "busid": BusId(busid),
        "syspath": f"/sys/devices/pci0000:00/0000:00:14.0/usb1/1-1/{busid}",
        "busnum": 1,
        "devnum": 5,
        "vendor_id": "0951",
        "product_id": "1666",
        "bcd": "0110",
        "manufacturer": "Kingston",
        "product": "DataTraveler 3.0",
        "serial": "60A44C413FAE",
        "serial_raw": b"60A44C413FAE",
        "class_code": 0,
        "subclass": 0,
        "protocol": 0,
        "speed": Speed.HIGH,
        "port_path": "pci-0000:00:14.0-usb2.0-1.4",
        "interfaces": (UsbInterface(0, 0x08, 0x06, 0x50, "usb-storage"),),
        "isochronous": False,
        "driver": "usb",
        "authorized": True,
        "configuration": 1,
        "imported": False,
        "major": 189,
        "minor": 4,
    }
    return UsbDevice(**{**fields, **changes})


def offer(name: str = "usb-0951-1666-60a44c413fae", **changes: Any) -> Offer:
    """The stick as policy offers it; changes go to the offer or else to the device."""
    own: dict[str, Any] = {
        key: changes.pop(key) for key in ("usable", "exportable", "reason") if key in changes
    }
    fields: dict[str, Any] = {"usable": True, "exportable": True, "reason": "", **own}
    return Offer(name=DeviceName(name), device=device(**changes), **fields)
