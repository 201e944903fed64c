# SPDX-License-Identifier: Apache-2.0
"""Devices and ports as JSON objects and as table rows.

Owns the JSON contract of `list`, `remote` and `ports` (docs/cli.md). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from usbdra.types import Attachment, Hub, Offer, Port, RemoteDevice, Speed, SpeedClass

if TYPE_CHECKING:
    from usbdra.vhci.table import HubCount

DEVICE_HEADERS = ("NAME", "BUSID", "SPEED", "DEVICE", "EXPORTABLE")
DEVICE_WIDE = ("SERIAL", "MANUFACTURER", "CLASSES", "PORT PATH", "REASON")
REMOTE_HEADERS = ("NAME", "BUSID", "SPEED", "DEVICE", "AVAILABLE")
REMOTE_WIDE = ("SERIAL", "MANUFACTURER", "REASON")
PORT_HEADERS = ("PORT", "HUB", "STATE", "DEVICE", "REMOTE")
PORT_WIDE = ("CONTROLLER",)

_SPEED_TEXT = {
    SpeedClass.LOW: "1.5M",
    SpeedClass.FULL: "12M",
    SpeedClass.HIGH: "480M",
    SpeedClass.SUPER: "5G+",
}


def device(offer: Offer) -> dict[str, Any]:
    """One device of `list -o json`."""
    usb = offer.device
    return {
        "name": offer.name,
        "busID": usb.busid,
        "vendorID": usb.vendor_id,
        "productID": usb.product_id,
        "manufacturer": usb.manufacturer,
        "product": usb.product,
        "serial": usb.serial,
        "bcd": usb.bcd,
        "speed": usb.speed.mbit_text,
        "speedClass": usb.speed.speed_class.value if usb.speed.speed_class else None,
        "class": f"{usb.class_code:02x}",
        "interfaceClasses": sorted({f"{i.class_code:02x}" for i in usb.interfaces}),
        "isochronous": usb.isochronous,
        "bus": usb.busnum,
        "deviceNumber": usb.devnum,
        "devicePath": usb.node_path,
        "portPath": usb.port_path,
        "driver": usb.driver,
        "usable": offer.usable,
        "exportable": offer.exportable,
        "reason": offer.reason,
    }


def device_row(offer: Offer, wide: bool) -> tuple[str, ...]:
    """One device as cells of DEVICE_HEADERS and DEVICE_WIDE."""
    usb = offer.device
    row = (
        offer.name,
        usb.busid,
        _speed(usb.speed),
        _title(usb.vendor_id, usb.product_id, usb.product),
        "yes" if offer.exportable else "no",
    )
    if not wide:
        return row
    classes = ",".join(sorted({f"{i.class_code:02x}" for i in usb.interfaces}))
    more = (usb.serial or "", usb.manufacturer or "", classes, usb.port_path, offer.reason)
    return row + more


def remote(found: RemoteDevice) -> dict[str, Any]:
    """One device of `remote -o json`."""
    speed = Speed.from_code(found.speed_code)
    return {
        "name": found.name,
        "busID": found.busid,
        "vendorID": found.vendor_id,
        "productID": found.product_id,
        "manufacturer": found.manufacturer,
        "product": found.product,
        "serial": found.serial,
        "bcd": found.bcd,
        "speed": speed.mbit_text,
        "speedClass": speed.speed_class.value if speed.speed_class else None,
        "class": f"{found.class_code:02x}",
        "interfaceClasses": sorted({f"{c:02x}" for c, _, _ in found.interfaces}),
        "available": found.available,
        "reason": found.reason,
    }


def remote_row(found: RemoteDevice, wide: bool) -> tuple[str, ...]:
    """One device as cells of REMOTE_HEADERS and REMOTE_WIDE."""
    row = (
        found.name or "",
        found.busid,
        _speed(Speed.from_code(found.speed_code)),
        _title(found.vendor_id, found.product_id, found.product),
        "yes" if found.available else "no",
    )
    more = (found.serial or "", found.manufacturer or "", found.reason)
    return row + more if wide else row


def port(row: Port) -> dict[str, Any]:
    """One port of `ports -o json`. `remoteDevice` is `bus-device` on the exporter, or None."""
    return {
        "port": row.port,
        "controller": row.controller,
        "hub": row.hub.value if row.hub else None,
        "state": row.state.value,
        "remoteDevice": f"{row.devid >> 16}-{row.devid & 0xFFFF}" if row.devid else None,
        "localBusID": row.local_busid,
    }


def port_row(row: Port, wide: bool) -> tuple[str, ...]:
    """One port as cells of PORT_HEADERS and PORT_WIDE."""
    seen = port(row)
    cells = (
        str(row.port),
        seen["hub"] or "?",
        seen["state"],
        row.local_busid or "",
        seen["remoteDevice"] or "",
    )
    return (*cells, str(row.controller)) if wide else cells


def ports(rows: Iterable[Port], hubs: Mapping[Hub, HubCount]) -> dict[str, Any]:
    """All of `ports -o json`."""
    return {
        "ports": [port(row) for row in rows],
        "capacity": {hub.value: hubs[hub].capacity if hub in hubs else 0 for hub in Hub},
        "free": {hub.value: hubs[hub].free if hub in hubs else 0 for hub in Hub},
    }


def attachment(found: Attachment) -> dict[str, Any]:
    """The result of `attach -o json`; timings in seconds, in the order they came."""
    return {
        "port": found.port,
        "hub": found.hub.value,
        "busID": found.device.busid,
        "devicePath": found.device.node_path,
        "remote": remote(found.remote),
        "children": [
            {
                "kind": child.kind,
                "path": child.path,
                "major": child.major,
                "minor": child.minor,
                "interface": child.interface,
            }
            for child in found.children
        ],
        "unsettled": list(found.unsettled),
        "timings": {name: round(seconds, 6) for name, seconds in found.timings},
    }


def _speed(speed: Speed) -> str:
    return _SPEED_TEXT[speed.speed_class] if speed.speed_class else "?"


def _title(vendor: str, product: str, text: str | None) -> str:
    return f"{vendor}:{product} {text or ''}".rstrip()
