# SPDX-License-Identifier: Apache-2.0
"""The attributes of a device in a ResourceSlice, whoever publishes it. Pure.

Owns their names, order and limits, for devices of nodes and of hosts outside the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from usbdra.slices import limits
from usbdra.types import DeviceName, Hub, Offer, RemoteDevice, Speed, SpeedClass, UsbDevice

Value = str | int | bool | None


def attributes(offer: Offer, node: str) -> dict[str, Value]:
    """A device's attributes, empty ones left out, before they take the API's form.

    `speed` is whole Mbit/s (1.5 gives 1). `speedClass` of a device that may cross nodes is the
    class of the hub it needs there, so that it equals the attribute of the port claimed with
    it: low and full speed devices, once allowed to cross, say `high`.
    """
    device = offer.device
    facts = Facts(
        name=offer.name,
        node=node,
        speed=device.speed,
        speed_class=_speed_class(offer),
        interface_classes=frozenset(i.class_code for i in device.interfaces),
        port_path=device.port_path,
        isochronous=device.isochronous,
    )
    return described(device, facts)


@dataclass(frozen=True, slots=True)
class Facts:
    """What of a device's attributes is known in another way here and outside the cluster."""

    name: DeviceName | None
    node: str
    speed: Speed
    speed_class: str | None
    interface_classes: frozenset[int]
    port_path: str = ""
    isochronous: bool | None = None


def described(device: UsbDevice | RemoteDevice, facts: Facts) -> dict[str, Value]:
    """A device's attributes, in their order, empty ones left out."""
    classes = (f"{code:02x}" for code in sorted(facts.interface_classes))
    known = facts.speed is not Speed.UNKNOWN
    values: dict[str, Value] = {
        "kind": "usb",
        "name": facts.name,
        "node": node_value(facts.node),
        "vendorID": device.vendor_id,
        "productID": device.product_id,
        "bcd": device.bcd,
        "manufacturer": limits.clean_text(device.manufacturer or ""),
        "product": limits.clean_text(device.product or ""),
        "serial": limits.clean_text(device.serial or ""),
        "bus": device.busnum,
        "deviceNumber": device.devnum,
        "busID": limits.clean_text(device.busid),
        "portPath": limits.clean_text(facts.port_path),
        "speed": int(float(facts.speed.mbit_text)) if known else None,
        "speedClass": facts.speed_class,
        "class": f"{device.class_code:02x}",
        "interfaceClasses": limits.clean_text(",".join(classes)),
        "isochronous": facts.isochronous,
    }
    return {key: value for key, value in values.items() if value is not None and value != ""}


def node_value(node: str) -> str:
    """The node's name as an attribute value; what is too long keeps its start and gets a hash."""
    return limits.shorten(node, limits.MAX_VALUE_BYTES)


def typed_attributes(values: Mapping[str, Value]) -> dict[str, dict[str, Any]]:
    """Values in the API's form: a union of `string`, `int` and `bool`."""
    typed: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        if isinstance(value, bool):
            typed[key] = {"bool": value}
        elif isinstance(value, int):
            typed[key] = {"int": value}
        elif value is not None:
            typed[key] = {"string": value}
    return typed


def _speed_class(offer: Offer) -> str | None:
    own = offer.device.speed.speed_class
    if own is None:
        return None
    if offer.exportable and own in (SpeedClass.LOW, SpeedClass.FULL):
        return Hub.HIGH.value
    return own.value
