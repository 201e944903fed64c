# SPDX-License-Identifier: Apache-2.0
"""Why a claim or a pod has not got its device: one paragraph from what the API holds. Pure.

Owns the paragraph: what is certain first (causes.py), then what a node reported, then what the
scheduler said. Each names the thing and the remedy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from usbdra.cli.kubectl import causes
from usbdra.cli.kubectl.asks import Ask
from usbdra.cli.kubectl.known import Facts
from usbdra.cli.kubectl.views import condition
from usbdra.controller.uses import Use, consumers, uses

Object = Mapping[str, Any]
CLASS_RESOURCE = "deviceclass.resource.kubernetes.io/"
"""Prefix of the extended resource that every DeviceClass has by itself (KEP 5004)."""

REMEDIES: Mapping[str, str] = {
    "LinkLost": "its node tries again by itself; look at node {home} and the network between",
    "NotFound": "plug it in again, its node attaches it by itself; or delete the pod",
    "NoFreeUSBIPPort": "end another pod with a device there, or run the pod on another node",
    "Busy": "end who has it there; the node tries again by itself",
    "InUse": "the host of node {home} uses it itself: unmount it there",
    "Refused": "see whether the device is assigned to this namespace and may cross nodes",
    "PeerRefused": "see whether the device is assigned to this namespace, and the agent's log on "
    "node {home}",
    "Unreachable": "see that node {home} and its agent run, and that its port is not blocked",
    "NotAuthenticated": "see the certificates of both nodes in their agents' logs",
    "EncryptionUnavailable": "load the kernel module tls on both nodes (usbdra doctor)",
    "KernelUnsupported": "see usbdra doctor on the pod's node",
    "IdentityChanged": "another device is in its place: see kubectl usb devices",
    "BadConfig": "correct the claim's parameters, and make claim and pod again",
}
"""What to do about a reason that a node reported; {home} is the device's node."""
OTHERWISE = "docs/troubleshooting.md says what to do about each reason"


def explain_claim(claim: Object, facts: Facts, pod: Object | None = None) -> str:
    """What there is to say about one ResourceClaim; `pod` is one that waits for it."""
    meta = claim["metadata"]
    who = f"Claim {meta['namespace']}/{meta['name']}"
    if (claim.get("status") or {}).get("allocation"):
        return f"{who} {_allocated(claim, facts)}"
    if meta.get("deletionTimestamp"):
        return (
            f"{who} is being deleted, so no pod can take it any more; make it again, or wait "
            "until the device's assignment does."
        )
    found = causes.cause(causes.of_claim(claim, facts, pod), facts)
    if found:
        return found
    said = _scheduler(pod) if pod else ""
    if said:
        return f"{who} is not allocated. The scheduler says: {said}"
    return f"{who} is free: no pod that is being scheduled uses it, and nothing stands in its way."


def explain_pod(pod: Object, claims: Mapping[str, Object], facts: Facts) -> str:
    """What there is to say about all claims of a pod; `claims`: those that exist, by name."""
    meta = pod["metadata"]
    who = f"Pod {meta['namespace']}/{meta['name']}"
    parts = [*_own_claims(pod, who, claims, facts), *_extended(pod, who, claims, facts)]
    return " ".join(parts) or f"{who} asks for no claim."


def _own_claims(pod: Object, who: str, claims: Mapping[str, Object], facts: Facts) -> Iterator[str]:
    made: dict[str, str | None] = {
        status["name"]: status.get("resourceClaimName")
        for status in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    for entry in pod["spec"].get("resourceClaims") or ():
        name = entry.get("resourceClaimName") or made.get(entry["name"])
        if name and name in claims:
            yield explain_claim(claims[name], facts, pod)
        elif name:
            yield (
                f"{who} waits for claim {name}, which does not exist; make it, or have the "
                "device assigned to this namespace."
            )
        else:
            template = entry.get("resourceClaimTemplateName")
            yield (
                f"{who} waits for its claim of template {template}: "
                "see that the template exists (kubectl get resourceclaimtemplates)."
            )


def _extended(pod: Object, who: str, claims: Mapping[str, Object], facts: Facts) -> Iterator[str]:
    """Devices that containers ask for by a resource's name; the scheduler makes their claim."""
    made = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    claim = claims.get(str(made.get("resourceClaimName", "")))
    if claim is not None:
        yield explain_claim(claim, facts, pod)
        return
    for resource in _resources(pod):
        name = _class_of(resource, facts)
        if name is None:
            continue
        ask = Ask(resource, name)
        wish = causes.Wish(who, str(pod["metadata"]["namespace"]), [ask], node=causes.pinned(pod))
        said = _scheduler(pod)
        yield causes.cause(wish, facts) or (
            f"{who} asks for {resource}, a device of class {name}. The scheduler says: {said}"
            if said
            else f"{who} asks for {resource}, a device of class {name}, and nothing stands in "
            "its way."
        )


def _resources(pod: Object) -> list[str]:
    """Names of extended resources of all containers, each once."""
    containers = [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
    names = (
        name
        for container in containers
        for kind in ("limits", "requests")
        for name in (container.get("resources") or {}).get(kind) or ()
    )
    return [name for name in dict.fromkeys(names) if "/" in name]


def _class_of(resource: str, facts: Facts) -> str | None:
    """The DeviceClass behind a resource; None for those of others, as device plugins have."""
    if resource.startswith(CLASS_RESOURCE):
        return resource.removeprefix(CLASS_RESOURCE)
    for name, item in (facts.classes or {}).items():
        if (item.get("spec") or {}).get("extendedResourceName") == resource:
            return name
    return None


def _allocated(claim: Object, facts: Facts) -> str:
    found = uses(claim, facts.driver)
    if not found:
        return "is allocated, and has no USB device of its own."
    return " ".join(_use(use, bool(consumers(claim)), facts) for use in found)


def _use(use: Use, reserved: bool, facts: Facts) -> str:
    what = f"has device {use.device} of node {use.node}"
    if use.ready:
        return f"{what}, and it is attached: {use.message}."
    if use.ready is False:
        remedy = REMEDIES.get(use.reason, OTHERWISE).format(home=use.node)
        text = use.message.removesuffix(".")
        return f"{what}, and it cannot be used now ({use.reason}): {text}; {remedy}."
    if not reserved:
        return f"{what}, and no pod holds it; it is given back soon."
    pods = ", ".join(pod.name for pod in use.consumers)
    said = (facts.warnings or {}).get(use.claim)
    if said:
        reason = said.partition(":")[0]
        remedy = REMEDIES.get(reason, OTHERWISE).format(home=use.node)
        text = said.removesuffix(".")
        return f"{what}, and the node of pod {pods} could not attach it. {text}; {remedy}."
    return (
        f"{what}, and the node of pod {pods} has not attached it yet; see that the agent runs "
        "there and what it says (kubectl -n "
        f"{use.namespace} describe resourceclaim {use.claim})."
    )


def _scheduler(pod: Object) -> str:
    found = condition(pod, "PodScheduled")
    return str(found.get("message", "")) if found["status"] == "False" else ""
