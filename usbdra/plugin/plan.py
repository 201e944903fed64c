# SPDX-License-Identifier: Apache-2.0
"""From an allocated ResourceClaim and the facts about its devices to what must be held.

Owns reading a claim and pairing each device with its way here. Pure: facts come in as
arguments, the plan goes out as a claim record that holds nothing yet. Everything a claim can be
refused for before anything is touched is refused here, with a text for its author.

Forms of a claim: device and link tied by a `matchAttribute` constraint; device alone, the way
is then the agent's choice; a port alone whose parameters name the device (`device:` of
USBDeviceConfig); admin access, which looks at a device and holds nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from usbdra.errors import NotFound, Refused
from usbdra.plugin.config import DeviceConfig, Target, merge, to_record
from usbdra.plugin.contracts import DirectFact, Fact, UsbFact, VhciFact
from usbdra.state.claims import (
    ClaimRecord,
    ClaimRef,
    DeviceRecord,
    LinkRecord,
    Phase,
    Route,
)
from usbdra.types import ClaimUid, Hub, NodeName, Speed

POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"


@dataclass(frozen=True, slots=True)
class Result:
    """One entry of `status.allocation.devices.results` for this driver, with its parameters."""

    request: str
    pool: str
    device: str
    share_id: str | None
    admin: bool
    config: DeviceConfig


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a claim was given, and which of its requests are tied together."""

    ref: ClaimRef
    results: tuple[Result, ...]
    ties: tuple[frozenset[str], ...]


def read_claim(claim: Mapping[str, Any], driver: str) -> Allocation:
    """Read the parts of a ResourceClaim (resource.k8s.io/v1) that matter to this driver.

    Raises Refused when it is not allocated or has nothing of this driver, ConfigError for bad
    parameters.
    """
    ref = _ref(claim)
    allocation = (claim.get("status") or {}).get("allocation")
    if not allocation:
        raise Refused(f"{ref} is not allocated")
    devices = allocation.get("devices") or {}
    results = tuple(
        Result(
            request=entry["request"],
            pool=entry["pool"],
            device=entry["device"],
            share_id=entry.get("shareID"),
            admin=bool(entry.get("adminAccess")),
            config=merge(driver, _parameters(devices, driver, entry["request"])),
        )
        for entry in devices.get("results") or ()
        if entry["driver"] == driver
    )
    if not results:
        raise Refused(f"{ref} has no device of {driver}")
    constraints = ((claim.get("spec") or {}).get("devices") or {}).get("constraints") or ()
    ties = tuple(frozenset(c["requests"]) for c in constraints if c.get("requests"))
    return Allocation(ref, results, ties)


def targets(allocation: Allocation) -> frozenset[Target]:
    """The devices that parameters name, which facts must be found for by name."""
    return frozenset(r.config.target for r in allocation.results if r.config.target)


def plan(
    allocation: Allocation,
    facts: Mapping[tuple[str, str], Fact],
    named: Mapping[Target, UsbFact],
    node: NodeName,
    boot_id: str,
) -> ClaimRecord:
    """The claim's record in phase PREPARING, with every device's route and nothing held.

    facts: by (pool, device) for every result. named: for every target that is known here.
    Raises NotFound for an entry nothing is known of, Refused for what may not be.
    """
    for result in allocation.results:
        if (result.pool, result.device) not in facts:
            raise NotFound(f"device {result.pool}/{result.device} is not published any more")
    pairing = _Pairing(allocation, facts, named, node)
    devices = pairing.devices()
    _refuse_twice(allocation.ref, devices)
    counts = Counter(device.base_request for device in devices)
    seen: Counter[str] = Counter()
    numbered = []
    for device in devices:
        base = device.base_request
        numbered.append(replace(device, slot=seen[base], slots=counts[base]))
        seen[base] += 1
    return ClaimRecord(
        allocation.ref, Phase.PREPARING, boot_id, tuple(numbered), pairing.rest(devices)
    )


class _Pairing:
    """Gives each allocated device its way here; one use."""

    def __init__(
        self,
        allocation: Allocation,
        facts: Mapping[tuple[str, str], Fact],
        named: Mapping[Target, UsbFact],
        node: NodeName,
    ) -> None:
        self._ref = allocation.ref
        self._ties = allocation.ties
        self._named = named
        self._node = node
        found = [(result, facts[result.pool, result.device]) for result in allocation.results]
        self._usb = [(r, f) for r, f in found if isinstance(f, UsbFact)]
        self._links = [(r, f) for r, f in found if not isinstance(f, UsbFact)]
        self._free = list(self._links)

    def devices(self) -> Sequence[DeviceRecord]:
        """Records for all devices, in the order of the allocation, then of named ones."""
        return [*(self._allocated(r, f) for r, f in self._usb), *self._by_name()]

    def rest(self, devices: Sequence[DeviceRecord]) -> tuple[LinkRecord, ...]:
        """The results that no device record stands for, which the kubelet's answer lists."""
        taken = {(d.request, d.pool, d.device, d.share_id) for d in devices}
        return tuple(
            LinkRecord(r.request, r.pool, r.device, r.share_id)
            for r, _ in self._links
            if (r.request, r.pool, r.device, r.share_id) not in taken
        )

    def _allocated(self, result: Result, fact: UsbFact) -> DeviceRecord:
        target = result.config.target
        if target and (target.name, target.node) != (fact.name, fact.node):
            raise Refused(
                f"the parameters of request {result.request} name device {target.name} of node "
                f"{target.node}, but {fact.name} of node {fact.node} was allocated"
            )
        if result.admin:
            return _record(result, fact, Route.OBSERVE)
        self._allowed(fact)
        if fact.node == self._node:
            self._take_link(result, fact, None)
            return _record(result, fact, Route.DIRECT)
        hub = _hub(fact)
        self._take_link(result, fact, hub)
        return _record(result, fact, Route.VHCI, hub)

    def _by_name(self) -> Iterator[DeviceRecord]:
        """Ports whose parameters name the device they are for."""
        for result, link in list(self._free):
            if not isinstance(link, VhciFact) or link.node != self._node:
                continue
            target = result.config.target
            if target is None:
                if self._usb:
                    continue  # a port too many takes nothing from anybody
                raise Refused(
                    f"request {result.request} holds a port for no device; add a request for the "
                    "device, or parameters with `device: {name, node}`"
                )
            fact = self._named.get(target)
            if fact is not None and not result.admin:
                self._allowed(fact)
            route = self._route_to(target, result)
            if fact is not None and route is Route.VHCI and _hub(fact) is not link.hub:
                raise Refused(
                    f"device {target.name} needs a port of the {_hub(fact).value}-speed hub; "
                    f"{result.device} is of the {link.hub.value}-speed hub"
                )
            yield DeviceRecord(
                request=result.request,
                pool=result.pool,
                device=result.device,
                name=target.name,
                node=target.node,
                route=route,
                share_id=result.share_id,
                hub=link.hub if route is Route.VHCI else None,
                identity=fact.identity if fact else None,
                config=to_record(result.config),
            )

    def _route_to(self, target: Target, result: Result) -> Route:
        if result.admin:
            return Route.OBSERVE
        return Route.DIRECT if target.node == self._node else Route.VHCI

    def _allowed(self, fact: UsbFact) -> None:
        if not fact.usable or (fact.node != self._node and not fact.exportable):
            raise Refused(f"device {fact.name} of node {fact.node} is not offered: {fact.reason}")

    def _take_link(self, result: Result, fact: UsbFact, hub: Hub | None) -> None:
        """Use up the link allocated for this device.

        A tied link must fit. Without one, a link that no constraint mentions is taken if it
        fits; else the agent chooses the way by itself.
        """
        tied = [entry for entry in self._free if self._are_tied(result, entry[0])]
        loose = [entry for entry in self._free if not self._is_tied(entry[0])]
        for entry in (*tied, *loose):
            if self._fits(entry[1], fact, hub):
                self._free.remove(entry)
                return
        if tied:
            way = "directly" if hub is None else f"over the {hub.value}-speed hub"
            raise Refused(
                f"device {fact.name} is reached {way} from node {self._node}, but "
                f"{tied[0][0].device} was allocated for request {tied[0][0].request}; tie "
                f"it to request {result.request} by matchAttribute, `node` for direct and "
                "`speedClass` for a port"
            )

    def _fits(self, link: Fact, fact: UsbFact, hub: Hub | None) -> bool:
        if isinstance(link, VhciFact):
            return hub is link.hub and link.node == self._node
        if isinstance(link, DirectFact):
            return hub is None and link.node == self._node
        return False

    def _are_tied(self, one: Result, other: Result) -> bool:
        return any(_mentions(tie, one) and _mentions(tie, other) for tie in self._ties)

    def _is_tied(self, result: Result) -> bool:
        return any(_mentions(tie, result) for tie in self._ties)


def _refuse_twice(ref: ClaimRef, devices: Sequence[DeviceRecord]) -> None:
    held = Counter((d.node, d.name) for d in devices if d.exclusive)
    for (node, name), times in held.items():
        if times > 1:
            raise Refused(f"{ref} asks for device {name} of node {node} {times} times")


def _record(result: Result, fact: UsbFact, route: Route, hub: Hub | None = None) -> DeviceRecord:
    return DeviceRecord(
        request=result.request,
        pool=result.pool,
        device=result.device,
        name=fact.name,
        node=fact.node,
        route=route,
        share_id=result.share_id,
        hub=hub,
        identity=fact.identity,
        config=to_record(result.config),
    )


def _hub(fact: UsbFact) -> Hub:
    if fact.speed is Speed.UNKNOWN:
        raise Refused(f"device {fact.name} of node {fact.node} has no known speed")
    return Hub.for_speed(fact.speed)


def _mentions(requests: frozenset[str], result: Result) -> bool:
    """A request's own name covers its subrequests (API: DeviceConstraint.requests)."""
    return result.request in requests or result.request.partition("/")[0] in requests


def _ref(claim: Mapping[str, Any]) -> ClaimRef:
    metadata = claim["metadata"]
    return ClaimRef(
        metadata["namespace"],
        metadata["name"],
        ClaimUid(metadata["uid"]),
        (metadata.get("annotations") or {}).get(POD_CLAIM_NAME),
    )


def _parameters(devices: Mapping[str, Any], driver: str, request: str) -> Iterator[Any]:
    """Opaque parameters for one request, the class's first, so that the claim's win."""
    base = request.partition("/")[0]
    for source in ("FromClass", "FromClaim"):
        for entry in devices.get("config") or ():
            opaque = entry.get("opaque") or {}
            names = entry.get("requests") or (base,)
            ours = entry.get("source") == source and opaque.get("driver") == driver
            if ours and (request in names or base in names):
                yield opaque.get("parameters")
