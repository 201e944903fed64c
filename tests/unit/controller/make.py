# SPDX-License-Identifier: Apache-2.0
"""Slices, claims and objects as an API server would hold them, in the shortest form."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from usbdra.controller.published import Published, Reach, SlicePart
from usbdra.kube.custom import Contract
from usbdra.types import DeviceName, NodeName

CONTRACT = Contract("virtualization.deckhouse.io")
DRIVER = CONTRACT.driver
NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
STICK = DeviceName("usb-0951-1666-abc")

ATTRIBUTES: dict[str, Any] = {
    "kind": "usb",
    "vendorID": "0951",
    "productID": "1666",
    "bcd": "0110",
    "manufacturer": "Kingston",
    "product": "DataTraveler 3.0",
    "serial": "ABC",
    "bus": 2,
    "deviceNumber": 5,
    "busID": "2-1",
    "speed": 5000,
    "speedClass": "super",
}


def device(
    node: str = "a", name: str = STICK, reach: Reach = Reach.CLUSTER, **attributes: Any
) -> Published:
    values = {**ATTRIBUTES, "name": name, "node": node, **attributes}
    return Published(DeviceName(name), NodeName(node), reach, values)


def part(node: str, *devices: Published, generation: int = 1, count: int = 1) -> SlicePart:
    return SlicePart(f"usb-{node}", generation, count, devices)


def claim(
    namespace: str,
    name: str,
    node: str = "a",
    device: str = STICK,
    pods: tuple[str, ...] = (),
    ready: bool | None = None,
    reason: str = "Attached",
) -> dict[str, Any]:
    """An allocated claim for one device."""
    pool = f"usb-{node}"
    result = {"request": "usb", "driver": DRIVER, "pool": pool, "device": device}
    status: dict[str, Any] = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": p, "uid": f"uid-{p}"} for p in pods],
    }
    if ready is not None:
        state = {"type": "Ready", "status": str(ready), "reason": reason, "message": "as said"}
        report = {"driver": DRIVER, "pool": pool, "device": device, "conditions": [state]}
        status["devices"] = [report]
    meta = {"namespace": namespace, "name": name, "uid": f"uid-{namespace}-{name}"}
    return {"metadata": meta, "status": status}
