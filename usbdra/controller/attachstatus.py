# SPDX-License-Identifier: Apache-2.0
"""What the status of a USBAttachment says: words, and when each is the case. Pure.

The reasons are a contract (docs/objects.md). Attached is true only when the agent of the node has
plugged the device into this very pod of the machine, with this very claim, and the claim says
that it has the device. `status.plug` is the agent's own and is read here, never written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from usbdra.controller import holder
from usbdra.controller.acts import Object
from usbdra.controller.conditions import Condition, merged
from usbdra.controller.holder import Place
from usbdra.controller.uses import Use

PLUG = "plug"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an attachment cannot be."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Shown:
    """What a status is made of."""

    going: bool
    refusal: Refusal | None
    waits: str
    consumer: str
    """What is to have the device, as its kind and name."""
    running: bool
    place: Place | None
    """The pod that the holder was made for."""
    holder: Object | None
    claim: Object | None
    use: Use | None
    plug: Mapping[str, Any]


def status(
    shown: Shown, stored: Mapping[str, Any], generation: int, now: datetime
) -> dict[str, Any]:
    """All of the status that is the controller's."""
    conditions = merged(stored.get("conditions") or (), [_ready(shown), _attached(shown)], now)
    found: dict[str, Any] = {"observedGeneration": generation, "conditions": conditions}
    if shown.claim is not None:
        found["claimName"] = shown.claim["metadata"]["name"]
        found["claimUID"] = shown.claim["metadata"]["uid"]
    if shown.holder is not None:
        found["holderName"] = shown.holder["metadata"]["name"]
        if holder.node(shown.holder):
            found["nodeName"] = holder.node(shown.holder)
    if shown.holder is not None and shown.place is not None:
        found["target"] = dict(shown.place.target)
    address = shown.plug.get("address")
    if address and _plugged(shown):
        found["address"] = dict(address)
    return found


def same(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Equal but for what is the agent's, whatever the order of conditions."""
    have = {c["type"]: c for c in stored.get("conditions") or ()}
    want = {c["type"]: c for c in wanted["conditions"]}
    rest = {k: v for k, v in stored.items() if k not in ("conditions", PLUG)}
    return have == want and rest == {k: v for k, v in wanted.items() if k != "conditions"}


def _plugged(shown: Shown) -> bool:
    """The agent says so, of this claim and of this pod of the machine."""
    plug, place, claim = shown.plug, shown.place, shown.claim
    if not plug.get("attached") or place is None or claim is None:
        return False
    if plug.get("containerID", "") != place.container_id:  # another life of the container
        return False
    return (plug.get("podUID"), plug.get("claimUID")) == (place.uid, claim["metadata"]["uid"])


def _ready(shown: Shown) -> Condition:
    """Whether the machine can have the device now."""
    if shown.going:
        return Condition("Ready", False, "Detaching", "it is being deleted")
    if shown.refusal is not None:
        return Condition("Ready", False, shown.refusal.reason, shown.refusal.message)
    if not shown.running:
        return Condition("Ready", False, "NotRunning", f"{shown.consumer} does not run")
    return Condition("Ready", True, "Ready", f"{shown.consumer} can have it")


def _attached(shown: Shown) -> Condition:
    """Whether the machine has the device, and if not, why or what is waited for."""
    if _plugged(shown) and shown.use is not None and shown.use.ready:
        assert shown.place is not None
        place = shown.place
        if place.container:
            reason = "AttachedToPod"
            where = f"container {place.container} of {shown.consumer} (node {place.node})"
        else:
            reason = "AttachedToVirtualMachine"
            where = f"{shown.consumer} (pod {place.pod}, node {place.node})"
        message = f"in {where}; {shown.waits}" if shown.waits else f"in {where}"
        return Condition("Attached", True, reason, message)
    if shown.waits:
        return Condition("Attached", False, "InProgress", shown.waits)
    if shown.holder is None:
        message = f"{shown.consumer} does not have the device"
        return Condition("Attached", False, "Available", message)
    return Condition("Attached", False, *_fault(shown, shown.holder))


def _fault(shown: Shown, pod: Object) -> tuple[str, str]:
    """Reason and text of a device that is not in its machine though its holder is there."""
    use, plug = shown.use, shown.plug
    if use is None:
        return "InProgress", _pending(pod)
    if use.ready is False:
        return use.reason, use.message
    node = holder.node(pod)
    if use.ready is None:
        return "InProgress", f"node {node} is fetching the device"
    claim = shown.claim["metadata"]["uid"] if shown.claim else ""
    if plug.get("reason") and not plug.get("attached") and plug.get("claimUID") == claim:
        return str(plug["reason"]), str(plug.get("message", ""))
    return "InProgress", f"node {node} is plugging the device in"


def _pending(pod: Object) -> str:
    """Why the holder has no device yet, in the scheduler's words."""
    name = pod["metadata"]["name"]
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"pod {name} is not scheduled: {condition.get('message', '')}"
    return f"pod {name} waits for the scheduler"
