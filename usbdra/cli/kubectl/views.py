# SPDX-License-Identifier: Apache-2.0
"""What `kubectl usb` shows: objects of the API in, plain data and table rows out. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from usbdra.controller.hubs import HubUse
from usbdra.controller.published import place_of
from usbdra.controller.uses import Use

Object = Mapping[str, Any]

DEVICE_HEADERS = ("NAME", "NODE", "READY", "ASSIGNED", "ATTACHED", "NAMESPACE")
DEVICE_WIDE = ("VENDOR", "PRODUCT", "SERIAL", "SPEED", "MESSAGE")
CLAIM_HEADERS = ("NAMESPACE", "CLAIM", "DEVICE", "NODE", "STATE", "PODS")
CLAIM_WIDE = ("MESSAGE",)
PORT_HEADERS = ("NODE", "HUB", "USED", "FREE", "BY")


def condition(item: Object, kind: str) -> Mapping[str, str]:
    """A condition of an object; its fields are empty texts when it is not there."""
    found = (item.get("status") or {}).get("conditions") or ()
    empty = {"status": "", "reason": "", "message": ""}
    return next((c for c in found if c["type"] == kind), empty)


def device_row(item: Object, wide: bool) -> list[str]:
    """A NodeUSBDevice or a USBDevice; reasons where they say more than the status."""
    status, meta = item.get("status") or {}, item["metadata"]
    given = meta.get("namespace") or (item.get("spec") or {}).get("assignedNamespace", "")
    states = [_state(condition(item, kind)) for kind in ("Ready", "Assigned", "Attached")]
    row = [meta["name"], place_of(status), *states, given]
    if wide:
        said = status.get("attributes") or {}
        texts = (said.get(key, "") for key in ("manufacturer", "product", "serial", "speed"))
        row += [*map(str, texts), next(_troubles(item), "")]
    return row


def claim_data(use: Use) -> dict[str, Any]:
    """One device that one claim has."""
    return {
        "namespace": use.namespace,
        "claim": use.claim,
        "device": use.device,
        "node": use.node,
        "state": claim_state(use),
        "message": use.message,
        "pods": [pod.name for pod in use.consumers],
    }


def claim_row(use: Use, wide: bool) -> list[str]:
    """The same as a row."""
    data = claim_data(use)
    row = [str(data[key]) for key in ("namespace", "claim", "device", "node", "state")]
    return [*row, ",".join(data["pods"]), *([use.message] if wide else [])]


def claim_state(use: Use) -> str:
    """Attached, Local, LinkLost, ... as the agent reported, or Allocated before it did."""
    return use.reason or "Allocated"


def port_row(use: HubUse) -> list[str]:
    """A hub as a row."""
    return [use.node, use.hub, str(len(use.claims)), str(use.free), ", ".join(use.claims)]


def port_data(use: HubUse) -> dict[str, Any]:
    """A hub as data."""
    used = len(use.claims)
    counts = {"capacity": use.capacity, "used": used, "free": use.free}
    return {"node": use.node, "hub": use.hub, **counts, "claims": list(use.claims)}


def _state(found: Mapping[str, str]) -> str:
    plain = {"Ready", "Assigned", "Available", "AttachedToPod", "AttachedToVirtualMachine", ""}
    return found["status"] if found["reason"] in plain else found["reason"]


def _troubles(item: Object) -> Iterator[str]:
    """Messages of conditions whose reason is shown in place of their status."""
    for kind in ("Ready", "Assigned", "Attached"):
        found = condition(item, kind)
        if found["reason"] and _state(found) == found["reason"]:
            yield found["message"]
