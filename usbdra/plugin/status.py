# SPDX-License-Identifier: Apache-2.0
"""What `status.devices` of a ResourceClaim says about its devices (KEP 4817).

Owns the content. Pure. The API limits `data` to 10 KiB and conditions to 8.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from usbdra.errors import LinkError, NotFound, UsbdraError
from usbdra.plugin import layout
from usbdra.state.claims import ClaimRecord, DeviceRecord, Route

MAX_CHILDREN = 64
"""Child nodes listed: 64 of some 100 bytes each stay below the limit of `data`."""

LOST = "lost"
"""In `data` of a device that a prepared claim had and has lost; one that it never had is not."""

MAX_MESSAGE = 32768
"""Letters of a condition's message (metav1.Condition)."""

_REASONS = {Route.DIRECT: "Local", Route.VHCI: "Attached", Route.OBSERVE: "Observed"}


def device_statuses(
    record: ClaimRecord, now: datetime, missing: Collection[tuple[str, int]] = ()
) -> list[dict[str, Any]]:
    """One AllocatedDeviceStatus for each device of a prepared claim, `driver` left out.

    missing: keys of the devices that the claim has lost for the time being.
    """
    return [_status(device, now, device.key in missing) for device in record.devices]


def not_ready(record: ClaimRecord, error: UsbdraError, now: datetime) -> list[dict[str, Any]]:
    """The same of a claim that could not be prepared, and why."""
    return [_entry(device, now, error.reason, str(error)) for device in record.devices]


def loss(device: DeviceRecord) -> tuple[str, str]:
    """Reason and text for a device that a claim has lost."""
    error = LinkError if device.route is Route.VHCI else NotFound
    return error.reason, f"{device.name} of node {device.node} is gone"


def summary(record: ClaimRecord) -> str:
    """The claim's devices in one line, for its Event."""
    return "; ".join(_message(device) for device in record.devices)


def _status(device: DeviceRecord, now: datetime, missing: bool) -> dict[str, Any]:
    if missing:
        entry = _entry(device, now, *loss(device))
        return {**entry, "data": {**entry["data"], LOST: True}}
    ready = _entry(device, now, _REASONS[device.route], _message(device), "True")
    return {**ready, "data": _data(device)}


def _entry(
    device: DeviceRecord, now: datetime, reason: str, message: str, ready: str = "False"
) -> dict[str, Any]:
    found = {
        "pool": device.pool,
        "device": device.device,
        "conditions": [
            {
                "type": "Ready",
                "status": ready,
                "reason": reason,
                "message": message[:MAX_MESSAGE],
                "lastTransitionTime": now.isoformat(timespec="seconds").replace("+00:00", "Z"),
            }
        ],
        "data": {"name": device.name, "node": device.node},
    }
    return found if device.share_id is None else {**found, "shareID": device.share_id}


def _message(device: DeviceRecord) -> str:
    held = device.held
    if held is None:
        return f"{device.name} of node {device.node} is not on this node"
    if held.port is None:
        return f"{device.name} is plugged into this node at {held.busid}"
    return f"{device.name} of node {device.node} is attached to port {held.port} as {held.busid}"


def _data(device: DeviceRecord) -> dict[str, Any]:
    held = device.held
    data: dict[str, Any] = {"name": device.name, "node": device.node}
    if held is None:
        return data
    links = layout.node_links(device)
    data |= {
        "busID": held.busid,
        "bus": held.busnum,
        "deviceNumber": held.devnum,
        "path": held.node.path,
        "vendorID": held.identity.vendor_id,
        "productID": held.identity.product_id,
        "childNodes": [link.path for link in links[1 : MAX_CHILDREN + 1]],
    }
    if held.identity.serial:
        data["serial"] = held.identity.serial
    if held.port is not None:
        data["port"] = held.port
    return data
