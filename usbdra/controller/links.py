# SPDX-License-Identifier: Apache-2.0
"""Links between nodes and what they carry, read from claims. Pure.

Owns the reading of `status.devices[].data.link`; agent/linkrates.py writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Object = Mapping[str, Any]

_NUMBERS = ("receivedBytesPerSecond", "sentBytesPerSecond", "rttMicroseconds", "retransmits")


@dataclass(frozen=True, slots=True)
class Link:
    """One link. `data`: as programs get it; rates as seen from the node that uses the device."""

    data: Mapping[str, Any]

    @property
    def rate(self) -> int:
        """Bytes a second, both ways."""
        return int(self.data["receivedBytesPerSecond"]) + int(self.data["sentBytesPerSecond"])


def read(claims: Iterable[Object], driver: str) -> list[Link]:
    """The links of these claims, the busiest first."""
    found = [link for claim in claims for link in of_claim(claim, driver)]
    return sorted(found, key=lambda link: -link.rate)


def of_claim(claim: Object, driver: str) -> Iterator[Link]:
    """The links of one claim."""
    meta, status = claim["metadata"], claim.get("status") or {}
    for entry in status.get("devices") or ():
        data = entry.get("data") or {}
        link = data.get("link") if isinstance(data, Mapping) else None
        if entry.get("driver") != driver or not isinstance(link, Mapping):
            continue
        encrypted = link.get("encrypted")
        numbers = {key: link.get(key) for key in (*_NUMBERS, "seconds")}
        if not all(isinstance(value, int) for value in numbers.values()):
            continue  # of an agent that counts otherwise
        yield Link(
            {
                "namespace": meta["namespace"],
                "claim": meta["name"],
                "device": str(data.get("name", entry["device"])),
                "from": str(data.get("node", "")),
                "to": node_of(status),
                **numbers,
                "time": str(link.get("time", "")),
                "encrypted": encrypted if isinstance(encrypted, bool) else None,
            }
        )


def node_of(status: Object) -> str:
    """The node that the claim was allocated for."""
    selector = (status.get("allocation") or {}).get("nodeSelector") or {}
    for term in selector.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == "metadata.name":
                return str(next(iter(field.get("values") or ()), ""))
    return ""
