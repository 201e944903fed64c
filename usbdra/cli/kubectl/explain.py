# SPDX-License-Identifier: Apache-2.0
"""Why a claim or a pod has not got its device: one paragraph from what the API holds. Pure.

Owns the order in which causes are looked for: what is certain first (device gone, other
namespace, in use, hub full), then what the scheduler said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from usbdra.cli.kubectl.views import HubUse, condition
from usbdra.controller.uses import Use, consumers, uses

Object = Mapping[str, Any]
SUPER_SPEED = 5000
"""Mbit/s from which a device needs a super-speed port."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The cluster, as far as the caller may see it."""

    driver: str
    device_key: str
    """The label that names a claim's device (kube/custom.py)."""
    devices: Mapping[str, Object]
    """NodeUSBDevices by name; USBDevices of the namespace for who may not see those."""
    claims: Sequence[Object]
    hubs: Sequence[HubUse] | None
    """Every node's; None for who may not see them."""


def explain_claim(claim: Object, facts: Facts, pod: Object | None = None) -> str:
    """What there is to say about one ResourceClaim; `pod` is one that waits for it."""
    meta = claim["metadata"]
    who = f"Claim {meta['namespace']}/{meta['name']}"
    if (claim.get("status") or {}).get("allocation"):
        return f"{who} {_allocated(claim, facts)}"
    device = (meta.get("labels") or {}).get(facts.device_key, "")
    if meta.get("deletionTimestamp"):
        return f"{who} is being deleted, so no pod can take it any more."
    if device:
        cause = next(_causes(device, claim, facts, pod), "")
        if cause:
            return f"{who} waits for device {device}: {cause}"
    said = _scheduler(pod) if pod else ""
    if said:
        return f"{who} is not allocated. The scheduler says: {said}"
    return f"{who} is free: no pod that is being scheduled uses it, and nothing stands in its way."


def explain_pod(pod: Object, claims: Mapping[str, Object], facts: Facts) -> str:
    """What there is to say about all claims of a pod; `claims`: those that exist, by name."""
    meta = pod["metadata"]
    who = f"Pod {meta['namespace']}/{meta['name']}"
    made: dict[str, str | None] = {
        status["name"]: status.get("resourceClaimName")
        for status in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    parts = []
    for entry in pod["spec"].get("resourceClaims") or ():
        name = entry.get("resourceClaimName") or made.get(entry["name"])
        if name and name in claims:
            parts.append(explain_claim(claims[name], facts, pod))
        elif name:
            parts.append(f"{who} waits for claim {name}, which does not exist.")
        else:
            template = entry.get("resourceClaimTemplateName")
            parts.append(
                f"{who} waits for its claim of template {template}: "
                "see that the template exists (kubectl get resourceclaimtemplates)."
            )
    return " ".join(parts) or f"{who} asks for no claim."


def _allocated(claim: Object, facts: Facts) -> str:
    found = uses(claim, facts.driver)
    if not found:
        return "is allocated, and has no USB device of its own."
    return " ".join(_use(use, bool(consumers(claim))) for use in found)


def _use(use: Use, reserved: bool) -> str:
    what = f"has device {use.device} of node {use.node}"
    if use.ready:
        return f"{what}, and it is attached: {use.message}."
    if use.ready is False:
        return f"{what}, and it cannot be used now ({use.reason}): {use.message}."
    if not reserved:
        return f"{what}, and no pod holds it; it is given back soon."
    pods = ", ".join(pod.name for pod in use.consumers)
    return (
        f"{what}, and the node of pod {pods} has not attached it yet; the claim's events say why "
        f"(kubectl -n {use.namespace} describe resourceclaim {use.claim})."
    )


def _causes(device: str, claim: Object, facts: Facts, pod: Object | None) -> Iterator[str]:
    """What certainly keeps the claim from its device, the first one being enough."""
    record = facts.devices.get(device)
    if record is None:
        yield "there is no device of this name for you to see (any more)."
        return
    ready, assigned = condition(record, "Ready"), condition(record, "Assigned")
    if ready["status"] == "False":
        yield f"{ready['message']} ({ready['reason']})."
    namespace = claim["metadata"]["namespace"]
    own = record["metadata"].get("namespace")
    given = own or (record.get("spec") or {}).get("assignedNamespace") or ""
    if given != namespace:
        yield f"it is assigned to {f'namespace {given}' if given else 'no namespace'}."
    if assigned["reason"] == "InProgress":
        yield f"its assignment is on its way: {assigned['message']}."
    said = (record.get("status") or {}).get("attributes") or {}
    for use in _other_uses(said, claim, facts):
        pods = ", ".join(consumer.name for consumer in use.consumers) or "no pod any more"
        yield f"claim {use.namespace}/{use.claim} has it, used by {pods}."
    node = _pinned(pod)
    if node and node != said.get("nodeName"):
        yield from _hub(node, int(said.get("speed") or 0), facts)


def _other_uses(said: Object, claim: Object, facts: Facts) -> Iterator[Use]:
    own = claim["metadata"].get("uid")
    for other in facts.claims:
        if other["metadata"].get("uid") != own:
            for use in uses(other, facts.driver):
                if (use.device, use.node) == (said.get("name"), said.get("nodeName")):
                    yield use


def _hub(node: str, speed: int, facts: Facts) -> Iterator[str]:
    if facts.hubs is None:
        return
    wanted = "super" if speed >= SUPER_SPEED else "high"
    hub = next((hub for hub in facts.hubs if (hub.node, hub.hub) == (node, wanted)), None)
    if hub is None:
        yield (
            f"node {node} offers no {wanted}-speed port: its agent does not run, or the kernel "
            "has no vhci_hcd (usbdra doctor says more there)."
        )
    elif hub.free == 0:
        yield (
            f"no {wanted}-speed port is free on node {node} (NoFreeUSBIPPort): all "
            f"{hub.capacity} are taken, by {', '.join(hub.claims)}."
        )


def _pinned(pod: Object | None) -> str:
    """The one node that a pod can go to, if it says so."""
    spec = (pod or {}).get("spec") or {}
    selector = spec.get("nodeSelector") or {}
    return str(spec.get("nodeName") or selector.get("kubernetes.io/hostname") or "")


def _scheduler(pod: Object) -> str:
    found = condition(pod, "PodScheduled")
    return str(found.get("message", "")) if found["status"] == "False" else ""
