# SPDX-License-Identifier: Apache-2.0
"""What `kubectl usb top` shows: links as rows. Pure. Owns their units."""

from __future__ import annotations

from datetime import datetime

from usbdra.controller.links import Link

HEADERS = ("NAMESPACE", "CLAIM", "DEVICE", "FROM", "TO", "IN", "OUT", "RTT", "AGE")
WIDE = ("RESENT", "OVER", "ENCRYPTED")


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
