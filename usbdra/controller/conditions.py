# SPDX-License-Identifier: Apache-2.0
"""Conditions of NodeUSBDevice and USBDevice: their words, and when each is the case. Pure.

The reasons are a contract (docs/objects.md); agents use the same words in status.devices of
claims and in events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from usbdra.controller.published import Published
from usbdra.controller.uses import Use
from usbdra.types import outside_host

_FAULTS = ("LinkLost", "NoFreeUSBIPPort")
"""Reasons of agents that are shown as they are."""


Pod = tuple[str, str]
"""(namespace, name)."""


class NodeState(Enum):
    """A node, as far as its devices are concerned."""

    READY = "ready"
    NOT_READY = "not ready"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition without its time."""

    type: str
    status: bool
    reason: str
    message: str


def ready(device: Published | None, last_node: str, node: NodeState) -> Condition:
    """Ready, NotReady or NotFound."""
    last = _named(last_node)
    if node is NodeState.GONE and last_node:
        return Condition("Ready", False, "NotFound", f"{last} is gone")
    if device is None:
        where = f"; it was last plugged into {last}" if last_node else ""
        return Condition("Ready", False, "NotFound", f"no node has the device{where}")
    if node is NodeState.NOT_READY:
        state = "does not answer" if outside_host(device.node) else "is not ready"
        return Condition("Ready", False, "NotReady", f"{_named(device.node)} {state}")
    where = f" at {device.attributes['busID']}" if "busID" in device.attributes else ""
    return Condition("Ready", True, "Ready", f"plugged into {_named(device.node)}{where}")


def _named(node: str) -> str:
    host = outside_host(node)
    return f"node {node}" if host is None else f"host {host}"


def attached(found: Sequence[Use], machines: Mapping[Pod, str]) -> Condition:
    """AttachedToVirtualMachine, AttachedToPod, LinkLost, NoFreeUSBIPPort or Available.

    found: uses as agents reported them. Of several claims the one that really has the device
    counts; the exporting node gives it to one alone. machines: virtual machines, or `pod/NAME` of
    pods that were given it while they run, by the pod that holds a claim for them.
    """
    for use in found:
        if use.ready:
            held = [machines.get((use.namespace, pod.name)) for pod in use.consumers]
            machine = next((name for name in held if name), None)
            if machine is not None and machine.startswith("pod/"):
                who = f"pod {use.namespace}/{machine.removeprefix('pod/')} (claim {use.claim})"
                return Condition("Attached", True, "AttachedToPod", f"{who}: {use.message}")
            if machine is not None:
                who = f"virtual machine {use.namespace}/{machine} (claim {use.claim})"
                return Condition(
                    "Attached", True, "AttachedToVirtualMachine", f"{who}: {use.message}"
                )
            return Condition("Attached", True, "AttachedToPod", f"{_who(use)}: {use.message}")
    for use in found:
        if use.ready is False:
            reason = use.reason if use.reason in _FAULTS else "Available"
            return Condition("Attached", False, reason, f"{_who(use)}: {use.message}")
    for use in found:
        message = f"given to {_who(use)}, and not attached yet"
        return Condition("Attached", False, "Available", message)
    return Condition("Attached", False, "Available", "nobody uses the device")


def merged(
    stored: Iterable[dict[str, Any]], wanted: Iterable[Condition], now: datetime
) -> list[dict[str, Any]]:
    """Wanted conditions in the API's form; the time of one whose status stays is kept."""
    times = {c["type"]: (c["status"], c["lastTransitionTime"]) for c in stored}
    found = []
    for condition in wanted:
        status = "True" if condition.status else "False"
        before, since = times.get(condition.type, ("", ""))
        found.append(
            {
                "type": condition.type,
                "status": status,
                "reason": condition.reason,
                "message": condition.message,
                "lastTransitionTime": since if before == status else timestamp(now),
            }
        )
    return found


def timestamp(moment: datetime) -> str:
    """RFC 3339 with whole seconds, as the API writes times."""
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _who(use: Use) -> str:
    pods = ", ".join(f"{use.namespace}/{pod.name}" for pod in use.consumers)
    claim = f"claim {use.namespace}/{use.claim}"
    return f"pod {pods} ({claim})" if pods else claim
