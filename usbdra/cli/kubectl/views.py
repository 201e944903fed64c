# SPDX-License-Identifier: Apache-2.0
"""What `kubectl usb` shows: objects of the API in, plain data and table rows out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from usbdra.controller.uses import Use

Object = Mapping[str, Any]

DEVICE_HEADERS = ("NAME", "NODE", "READY", "ASSIGNED", "ATTACHED", "NAMESPACE")
DEVICE_WIDE = ("VENDOR", "PRODUCT", "SERIAL", "SPEED", "MESSAGE")
CLAIM_HEADERS = ("NAMESPACE", "CLAIM", "DEVICE", "NODE", "STATE", "PODS")
CLAIM_WIDE = ("MESSAGE",)
PORT_HEADERS = ("NODE", "HUB", "USED", "FREE", "BY")
_LINKS = "usblink-"


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
    row = [meta["name"], status.get("nodeName", ""), *states, given]
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


@dataclass(frozen=True, slots=True)
class HubUse:
    """A node's hub: how many ports claims may use, and the claims that have one."""

    node: str
    hub: str
    capacity: int
    claims: tuple[str, ...]

    @property
    def free(self) -> int:
        """Ports that the scheduler can still give."""
        return max(0, self.capacity - len(self.claims))


def hubs(slices: Iterable[Object], claims: Iterable[Object], driver: str) -> list[HubUse]:
    """Hubs of all nodes, from published links and allocated claims, in name order.

    A port counted as a capacity and one device a port are both known (slices/build.py).
    """
    capacity: dict[tuple[str, str], int] = {}
    for item in slices:
        pool = item["spec"]["pool"]["name"]
        if not pool.startswith(_LINKS):
            continue
        for entry in item["spec"].get("devices") or ():
            hub = _hub(entry["name"])
            if hub:
                ports = (entry.get("capacity") or {}).get("ports", {}).get("value", "1")
                key = (pool.removeprefix(_LINKS), hub)
                capacity[key] = capacity.get(key, 0) + int(ports)
    taken: dict[tuple[str, str], list[str]] = {key: [] for key in capacity}
    for claim in claims:
        allocation = ((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}
        meta = claim["metadata"]
        for result in allocation.get("results") or ():
            hub, pool = _hub(result["device"]), result["pool"]
            if result["driver"] == driver and hub and pool.startswith(_LINKS):
                who = f"{meta['namespace']}/{meta['name']}"
                taken.setdefault((pool.removeprefix(_LINKS), hub), []).append(who)
    return [
        HubUse(node, hub, capacity.get((node, hub), 0), tuple(sorted(claims)))
        for (node, hub), claims in sorted(taken.items())
    ]


def port_row(use: HubUse) -> list[str]:
    """A hub as a row."""
    return [use.node, use.hub, str(len(use.claims)), str(use.free), ", ".join(use.claims)]


def port_data(use: HubUse) -> dict[str, Any]:
    """A hub as data."""
    used = len(use.claims)
    counts = {"capacity": use.capacity, "used": used, "free": use.free}
    return {"node": use.node, "hub": use.hub, **counts, "claims": list(use.claims)}


def _hub(device: str) -> str:
    """`high` of `vhci-high` and of `vhci-high-3`; empty for a link that is no port."""
    parts = device.split("-")
    return parts[1] if parts[0] == "vhci" and len(parts) in (2, 3) else ""


def _state(found: Mapping[str, str]) -> str:
    plain = {"Ready", "Assigned", "Available", "AttachedToPod", "AttachedToVirtualMachine", ""}
    return found["status"] if found["reason"] in plain else found["reason"]


def _troubles(item: Object) -> Iterator[str]:
    """Messages of conditions whose reason is shown in place of their status."""
    for kind in ("Ready", "Assigned", "Attached"):
        found = condition(item, kind)
        if found["reason"] and _state(found) == found["reason"]:
            yield found["message"]
