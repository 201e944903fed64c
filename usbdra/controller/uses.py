# SPDX-License-Identifier: Apache-2.0
"""Who uses which device, read from ResourceClaims. Pure.

Owns the truth about use: what the allocation gave, which pods hold it (`status.reservedFor`) and
what the node's agent reported (`status.devices`, plugin/status.py). Wishes do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from usbdra.types import DeviceName, NodeName

_POOLS = ("usb-", "usblocal-")


@dataclass(frozen=True, slots=True, order=True)
class Consumer:
    """A pod that holds a claim."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Use:
    """One device that one allocated claim has.

    ready: what the agent reported, None before it did. reason: the agent's word for it.
    """

    device: DeviceName
    node: NodeName
    namespace: str
    claim: str
    consumers: tuple[Consumer, ...]
    ready: bool | None = None
    reason: str = ""
    message: str = ""


def consumers(claim: Mapping[str, Any]) -> tuple[Consumer, ...]:
    """The pods that a claim is reserved for, in name order."""
    reserved = (claim.get("status") or {}).get("reservedFor") or ()
    pods = (r for r in reserved if r.get("resource") == "pods" and not r.get("apiGroup"))
    return tuple(sorted(Consumer(str(r["name"]), str(r["uid"])) for r in pods))


def results(claim: Mapping[str, Any], driver: str) -> list[Mapping[str, Any]]:
    """What a claim was allocated of this driver; nothing while it is not allocated."""
    found = _allocated(claim).get("results") or ()
    return [result for result in found if result.get("driver") == driver]


def uses(claim: Mapping[str, Any], driver: str) -> tuple[Use, ...]:
    """The devices an allocated claim has; admin access looks on and has none."""
    status, given = claim.get("status") or {}, results(claim, driver)
    if not given:
        return ()
    reported = {
        (d.get("pool"), d.get("device"), d.get("shareID")): d
        for d in status.get("devices") or ()
        if d.get("driver") == driver
    }
    meta, pods = claim["metadata"], consumers(claim)
    found = []
    for result in given:
        if result.get("adminAccess"):
            continue
        for name, node in _devices(result, _allocated(claim).get("config") or (), driver):
            key = (result["pool"], result["device"], result.get("shareID"))
            report = _ready(reported.get(key) or {})
            found.append(Use(name, node, meta["namespace"], meta["name"], pods, *report))
    return tuple(found)


def _allocated(claim: Mapping[str, Any]) -> Mapping[str, Any]:
    return ((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}


def _devices(
    result: Mapping[str, Any], config: Iterable[Mapping[str, Any]], driver: str
) -> Iterator[tuple[DeviceName, NodeName]]:
    """The device itself, or the one that parameters name for a port."""
    for prefix in _POOLS:
        if result["pool"].startswith(prefix):
            yield DeviceName(result["device"]), NodeName(result["pool"].removeprefix(prefix))
            return
    request = str(result["request"])
    target = None
    for entry in config:
        opaque = entry.get("opaque") or {}
        names = entry.get("requests") or ()
        ours = opaque.get("driver") == driver
        if ours and (not names or request in names or request.partition("/")[0] in names):
            target = (opaque.get("parameters") or {}).get("device") or target
    if target:
        yield DeviceName(target.get("name", "")), NodeName(target.get("node", ""))


def _ready(report: Mapping[str, Any]) -> tuple[bool | None, str, str]:
    for condition in report.get("conditions") or ():
        if condition.get("type") == "Ready":
            state = condition.get("status") == "True"
            return state, str(condition.get("reason", "")), str(condition.get("message", ""))
    return None, "", ""
