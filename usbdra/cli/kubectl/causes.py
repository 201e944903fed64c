# SPDX-License-Identifier: Apache-2.0
"""What certainly keeps a claim that waits from its device, and what to do about it. Pure.

Owns the order in which causes are looked for. Each cause is the end of a sentence that names the
device before it, and ends with the remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from usbdra.cli.kubectl import asks, drains
from usbdra.cli.kubectl.asks import Ask
from usbdra.cli.kubectl.known import Facts, assigned_to, attributes, place
from usbdra.cli.kubectl.views import condition
from usbdra.controller.published import Reach
from usbdra.controller.uses import Use, uses

Object = Mapping[str, Any]
SUPER_SPEED = 5000
"""Mbit/s from which a device needs a super-speed port."""
MAX_NAMED = 3
"""Devices of which the causes are given one by one."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be explained: a claim, or what stands for one in a pod."""

    who: str
    namespace: str
    asks: Sequence[Ask]
    device: str = ""
    """The object's name, where a label names it."""
    uid: str = ""
    node: str = ""
    """The one node that the pod can go to; "" when it can go to several."""
    by_name: bool = False
    """Whether parameters name the device, so that a port is enough elsewhere."""


def of_claim(claim: Object, facts: Facts, pod: Object | None) -> Wish:
    """What a claim wishes; `pod` is one that waits for it."""
    meta = claim["metadata"]
    devices = (claim.get("spec") or {}).get("devices") or {}
    named = any(
        ((entry.get("opaque") or {}).get("parameters") or {}).get("device")
        for entry in devices.get("config") or ()
    )
    return Wish(
        who=f"Claim {meta['namespace']}/{meta['name']}",
        namespace=str(meta["namespace"]),
        asks=asks.read(claim, facts.driver),
        device=str((meta.get("labels") or {}).get(facts.contract.device_key, "")),
        uid=str(meta.get("uid", "")),
        node=pinned(pod),
        by_name=named,
    )


def cause(wish: Wish, facts: Facts) -> str:
    """One sentence with its subject; "" when nothing is certain."""
    for ask in wish.asks:
        missing = _no_class(ask, facts)
        if missing:
            return f"{wish.who} cannot be allocated: {missing}"
    if wish.device:
        found = _first(wish.device, None, wish, facts)
        return f"{wish.who} waits for device {wish.device}: {found}" if found else ""
    for ask in wish.asks:
        found = _of_ask(ask, wish, facts)
        if found:
            return f"{wish.who} {found}"
    return ""


def pinned(pod: Object | None) -> str:
    """The one node that a pod can go to, if it says so."""
    spec = (pod or {}).get("spec") or {}
    selector = spec.get("nodeSelector") or {}
    return str(spec.get("nodeName") or selector.get("kubernetes.io/hostname") or "")


def _no_class(ask: Ask, facts: Facts) -> str:
    name = ask.device_class
    if facts.classes is None or not name or name in facts.classes:
        return ""
    ours = facts.contract.device_class("devices")
    return (
        f"its request {ask.request} names DeviceClass {name}, which does not exist; make it, or "
        f"ask for {ours} (kubectl get deviceclasses)."
    )


def _of_ask(ask: Ask, wish: Wish, facts: Facts) -> str:
    """What keeps a claim from all the devices that this request could mean."""
    known = (facts.classes or {}).get(ask.device_class)
    full = asks.narrowed(ask, known, facts.driver) if known is not None else ask
    if not _for_a_device(full, facts):
        return ""
    names = [name for name, item in facts.devices.items() if full.matches(attributes(item))]
    if not names:
        return _nothing_matches(full)
    found = []
    for name in names:
        one = _first(name, full, wish, facts)
        if not one:
            return ""
        found.append((name, one))
    if len(found) == 1:
        return "waits for device {}: {}".format(*found[0])
    listed = " ".join(f"{name}: {one}" for name, one in found[:MAX_NAMED])
    more = f" And {len(found) - MAX_NAMED} more." if len(found) > MAX_NAMED else ""
    return f"can have none of the {len(found)} devices that fit. {listed}{more}"


def _for_a_device(ask: Ask, facts: Facts) -> bool:
    """Whether it is a USB device that is asked for, and not a link or another driver's device."""
    ours = facts.contract.device_class("devices")
    return ask.device_class == ours or ask.terms.get("kind") == "usb"


def _nothing_matches(ask: Ask) -> str:
    if not ask.terms.keys() - {"kind"}:
        return (
            "waits for a USB device, and there is none for you to see; see what nodes have: "
            "kubectl usb devices."
        )
    terms = ", ".join(f"{key} {value}" for key, value in ask.terms.items() if key != "kind")
    return (
        f"waits for a USB device with {terms}, and no device that you may see is so; compare "
        "with kubectl usb devices -o wide: it may be unplugged, or the text is another."
    )


def _first(name: str, ask: Ask | None, wish: Wish, facts: Facts) -> str:
    record = facts.devices.get(name)
    if record is None:
        return (
            "there is no device of this name for you to see (any more); see what there is: "
            f"kubectl usb devices -n {wish.namespace}."
        )
    for look in _LOOKS:
        for found in look(record, ask, wish, facts):
            return found
    return ""


Look = Callable[[Object, Ask | None, Wish, Facts], Iterator[str]]


def _ready(record: Object, ask: Ask | None, wish: Wish, facts: Facts) -> Iterator[str]:
    ready = condition(record, "Ready")
    if ready["status"] != "False":
        return
    node = place(record)[1]
    if ready["reason"] == "NotReady":
        remedy = f"see what is wrong with the node (kubectl describe node {node})"
    else:
        remedy = "plug it in again, or see that its node and the agent there run"
    yield f"{ready['message']} ({ready['reason']}); {remedy}."


def _assignment(record: Object, ask: Ask | None, wish: Wish, facts: Facts) -> Iterator[str]:
    name, given = record["metadata"]["name"], assigned_to(record)
    assign = f"who may assign devices gives it to you: kubectl usb assign {name} -n"
    if given and given != wish.namespace:
        yield f"it is assigned to namespace {given}; {assign} {wish.namespace}."
    elif not given and (ask is None or _unassigned(record, facts)):
        yield f"it is assigned to no namespace; {assign} {wish.namespace}."
    assigned = condition(record, "Assigned")
    if given and assigned["reason"] == "InProgress":
        yield f"its assignment is on its way: {assigned['message']}; wait for that, or end it."


def _unassigned(record: Object, facts: Facts) -> bool:
    """Whether a device without assignment is nobody's here: its slice says so, if it is seen."""
    seen = (facts.published or {}).get(place(record))
    return seen is not None and any(
        taint.get("key") == facts.contract.key("unassigned") for taint in seen.taints
    )


def _taints(record: Object, ask: Ask | None, wish: Wish, facts: Facts) -> Iterator[str]:
    seen = (facts.published or {}).get(place(record))
    if ask is None or seen is None:
        return
    for taint in seen.taints:
        if ask.tolerates(taint):
            continue
        if taint.get("key") == facts.contract.key("drain"):
            node = place(record)[1]
            text = f"kubectl usb undrain {node} lets it be used again."
            yield f"its {drains.place(node)} is drained; {text}"
        else:
            text = f"{taint.get('key')}={taint.get('value', '')}:{taint.get('effect')}"
            yield (
                f"it carries the taint {text}, which request {ask.request} does not tolerate; use "
                f"the claim {record['metadata']['name']} that its assignment made, or add the "
                f"toleration {{key: {taint.get('key')}, operator: Equal, value: "
                f"{taint.get('value', '')}, effect: {taint.get('effect')}}} to the request."
            )


def _in_use(record: Object, ask: Ask | None, wish: Wish, facts: Facts) -> Iterator[str]:
    for use in _other_uses(record, wish, facts):
        pods = ", ".join(consumer.name for consumer in use.consumers)
        if pods:
            yield (
                f"claim {use.namespace}/{use.claim} has it, used by {pods}; it is free when "
                "these pods have ended, or share that claim on their node."
            )
        yield (
            f"claim {use.namespace}/{use.claim} has it, used by no pod any more; wait a moment, "
            "or delete that claim."
        )


def _other_uses(record: Object, wish: Wish, facts: Facts) -> Iterator[Use]:
    for other in facts.claims:
        if not wish.uid or other["metadata"].get("uid") != wish.uid:
            for use in uses(other, facts.driver):
                if (use.device, use.node) == place(record):
                    yield use


def _node(record: Object, ask: Ask | None, wish: Wish, facts: Facts) -> Iterator[str]:
    if not wish.node or facts.nodes is None:
        return
    node = facts.nodes.get(wish.node)
    if node is None:
        yield f"node {wish.node}, where the pod must run, does not exist; change its nodeSelector."
    elif condition(node, "Ready")["status"] != "True":
        yield (
            f"node {wish.node}, where the pod must run, is not ready; see what is wrong with it "
            f"(kubectl describe node {wish.node}), or run the pod elsewhere."
        )


def _reach(record: Object, ask: Ask | None, wish: Wish, facts: Facts) -> Iterator[str]:
    home, seen = place(record)[1], (facts.published or {}).get(place(record))
    if not wish.node or wish.node == home or seen is None:
        return
    speed = attributes(record).get("speed")
    if seen.reach is Reach.LOCAL:
        why = (
            f"at {speed} Mbit/s it is too slow to cross nodes"
            if isinstance(speed, int) and speed < 480
            else "its node's policy keeps it there"
        )
        yield (
            f"{why}, and the pod must run on node {wish.node}; run the pod on node {home}, or "
            "let it cross (agent.forwardLowSpeed, device policy)."
        )
    elif seen.reach is Reach.NODE and not wish.by_name:
        name = record["metadata"]["name"]
        yield (
            f"only its own node {home} sees it (visibility: Node), and the pod must run on node "
            f"{wish.node}; use the claim {name} that its assignment makes, which names it."
        )


def _hub(record: Object, ask: Ask | None, wish: Wish, facts: Facts) -> Iterator[str]:
    if facts.hubs is None or not wish.node or wish.node == place(record)[1]:
        return
    wanted = "super" if int(attributes(record).get("speed") or 0) >= SUPER_SPEED else "high"
    hub = next((hub for hub in facts.hubs if (hub.node, hub.hub) == (wish.node, wanted)), None)
    if hub is None or not hub.capacity:
        yield (
            f"node {wish.node} offers no {wanted}-speed port: its agent does not run, or the "
            "kernel has no vhci_hcd; look at the node's events and at usbdra doctor there, or run "
            "the pod elsewhere."
        )
    elif hub.free == 0:
        yield (
            f"no {wanted}-speed port is free on node {wish.node} (NoFreeUSBIPPort): all "
            f"{hub.capacity} are taken, by {', '.join(hub.claims)}; end one of those, or run the "
            "pod on another node."
        )


_LOOKS: tuple[Look, ...] = (_ready, _assignment, _in_use, _node, _reach, _taints, _hub)
