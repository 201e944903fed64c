# SPDX-License-Identifier: Apache-2.0
"""What `kubectl usb top` shows: links and their numbers, read from claims. Pure.

Owns the reading of `status.devices[].data.link` (agent/linkrates.py writes it) and its units.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Object = Mapping[str, Any]

HEADERS = ("NAMESPACE", "CLAIM", "DEVICE", "FROM", "TO", "IN", "OUT", "RTT", "AGE")
WIDE = ("RESENT", "OVER", "ENCRYPTED")
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
    found = [link for claim in claims for link in _of_claim(claim, driver)]
    return sorted(found, key=lambda link: -link.rate)


def row(link: Link, now: datetime, wide: bool) -> list[str]:
    """A link as a row."""
    data = link.data
    cells = [str(data[key]) for key in ("namespace", "claim", "device", "from", "to")]
    cells += [
        _rate(data["receivedBytesPerSecond"]),
        _rate(data["sentBytesPerSecond"]),
        f"{data['rttMicroseconds'] / 1000:.1f}ms",
        _age(str(data["time"]), now),
    ]
    if wide:
        kernel = {True: "yes", False: "no", None: ""}[data["encrypted"]]
        cells += [str(data["retransmits"]), f"{data['seconds']}s", kernel]
    return cells


def _of_claim(claim: Object, driver: str) -> Iterator[Link]:
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
                "to": _node(status),
                **numbers,
                "time": str(link.get("time", "")),
                "encrypted": encrypted if isinstance(encrypted, bool) else None,
            }
        )


def _node(status: Object) -> str:
    """The node that the claim was allocated for."""
    selector = (status.get("allocation") or {}).get("nodeSelector") or {}
    for term in selector.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == "metadata.name":
                return str(next(iter(field.get("values") or ()), ""))
    return ""


def _rate(bytes_a_second: int) -> str:
    """In the largest unit, of 1000, that leaves a whole number before the point."""
    value, units = float(bytes_a_second), ["B/s", "kB/s", "MB/s", "GB/s"]
    while value >= 999.5 and len(units) > 1:
        value /= 1000
        units.pop(0)
    digits = 0 if units[0] == "B/s" or value >= 99.5 else 1
    return f"{value:.{digits}f}{units[0]}"


def _age(time: str, now: datetime) -> str:
    """As kubectl shows ages, in its coarsest form."""
    try:
        seconds = int((now - datetime.fromisoformat(time)).total_seconds())
    except (ValueError, TypeError):
        return "?"
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{max(0, seconds)}s"
