# SPDX-License-Identifier: Apache-2.0
"""Whether a claim, as the API server has it right now, entitles a node to a device. Pure.

Owns the decision and its text. The claim is read live by the caller: a cache may not know of a
deletion yet (KEP-4381, field reports R47 and R48). Must not do I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from usbdra.errors import Refused
from usbdra.types import DeviceName, NodeName


def require(
    claim: Mapping[str, Any] | None,
    *,
    what: str,
    uid: str,
    driver: str,
    device: DeviceName,
    exporter: NodeName,
    importer: NodeName,
) -> None:
    """Return when the claim gives this device to that node. Raises Refused with the reason.

    claim: the ResourceClaim, None when there is none. what: the claim in words. exporter: the
    node the device is plugged into; importer: the node whose certificate asks.
    """
    if claim is None or claim["metadata"]["uid"] != uid:
        raise Refused(f"{what} does not exist (any more)")
    if claim["metadata"].get("deletionTimestamp"):
        raise Refused(f"{what} is being deleted")
    allocation = (claim.get("status") or {}).get("allocation")
    if not allocation:
        raise Refused(f"{what} is not allocated")
    if not _names(allocation, driver, device, exporter):
        raise Refused(f"{what} was not given device {device} of node {exporter}")
    nodes = set(_pinned_to(allocation))
    if nodes and importer not in nodes:
        raise Refused(f"{what} was given to node {', '.join(sorted(nodes))}, not to {importer}")


def _names(
    allocation: Mapping[str, Any], driver: str, device: DeviceName, exporter: NodeName
) -> bool:
    """The device is a result of the allocation, or its parameters name it for a port."""
    devices = allocation.get("devices") or {}
    pools = (f"usb-{exporter}", f"usblocal-{exporter}")
    # Admin access looks at a device that may be another's, and is no reason to give it away.
    results = [
        r
        for r in devices.get("results") or ()
        if r["driver"] == driver and not r.get("adminAccess")
    ]
    if any(r["pool"] in pools and r["device"] == device for r in results):
        return True
    for entry in devices.get("config") or ():
        opaque = entry.get("opaque") or {}
        target = (opaque.get("parameters") or {}).get("device") or {}
        named = (target.get("name"), target.get("node")) == (device, exporter)
        if named and opaque.get("driver") == driver and results:
            return True
    return False


def _pinned_to(allocation: Mapping[str, Any]) -> Iterator[str]:
    """Node names of the allocation's node selector; nothing when it selects by labels alone."""
    for term in (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == "metadata.name" and field.get("operator") == "In":
                yield from field.get("values") or ()
