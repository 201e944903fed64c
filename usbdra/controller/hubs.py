# SPDX-License-Identifier: Apache-2.0
"""Hubs of nodes, their ports and who has them, read from slices and claims. Pure.

A port counted as a capacity and one device a port are both known (slices/build.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from usbdra.controller.uses import results

Object = Mapping[str, Any]
Hub = tuple[str, str]
"""(node, `high` or `super`)."""

_LINKS = "usblink-"


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
    """Hubs of all nodes, from published links and allocated claims, in name order."""
    capacity: Counter[Hub] = Counter()
    for item in slices:
        capacity.update(ports_of_slice(item))
    taken: dict[Hub, list[str]] = {key: [] for key in capacity}
    for claim in claims:
        meta = claim["metadata"]
        for key in ports_of_claim(claim, driver):
            taken.setdefault(key, []).append(f"{meta['namespace']}/{meta['name']}")
    return [
        HubUse(node, hub, capacity[node, hub], tuple(sorted(claims)))
        for (node, hub), claims in sorted(taken.items())
    ]


def ports_of_slice(item: Object) -> Counter[Hub]:
    """How many ports of which hub one slice offers."""
    found: Counter[Hub] = Counter()
    node = node_of_links(item)
    for entry in (item["spec"].get("devices") or ()) if node else ():
        hub = _hub(entry["name"])
        if hub:
            ports = (entry.get("capacity") or {}).get("ports", {}).get("value", "1")
            found[node, hub] += int(ports)
    return found


def node_of_links(item: Object) -> str:
    """The node whose links a slice publishes; empty for slices of devices."""
    pool = str(item["spec"]["pool"]["name"])
    return pool.removeprefix(_LINKS) if pool.startswith(_LINKS) else ""


def ports_of_claim(claim: Object, driver: str) -> Iterator[Hub]:
    """The hubs of which a claim has a port, one for each port."""
    for result in results(claim, driver):
        hub, pool = _hub(result["device"]), str(result["pool"])
        if hub and pool.startswith(_LINKS):
            yield pool.removeprefix(_LINKS), hub


def _hub(device: str) -> str:
    """`high` of `vhci-high` and of `vhci-high-3`; empty for a link that is no port."""
    parts = device.split("-")
    return parts[1] if parts[0] == "vhci" and len(parts) in (2, 3) else ""
