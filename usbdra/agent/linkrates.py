# SPDX-License-Identifier: Apache-2.0
"""From two counts of a link to what is worth telling of it. Pure.

Owns the form of `data.link` in a claim's status.devices, and what makes a new one worth a write:
a link that does as it did is not told of again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from usbdra.transport.measure import Counters

CHANGE = 0.25
"""A part by which a rate or the latency must differ from what was told last."""
QUIET = 1024
"""Bytes a second below which a link counts as idle, whatever the exact number."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Counters of one link at one moment; `at` in seconds of a clock that only goes forward."""

    at: float
    counters: Counters


@dataclass(frozen=True, slots=True)
class Numbers:
    """What a link does: bytes a second both ways, microseconds of a round trip, retransmits."""

    sent: int
    received: int
    rtt: int
    retransmits: int
    seconds: int
    """Over which time the rates are."""
    encrypted: bool = False

    def differ(self, told: Numbers | None) -> bool:
        """Whether a reader would want to know that they are no longer as told."""
        if told is None or told.encrypted is not self.encrypted:
            return True
        pairs = ((self.sent, told.sent, QUIET), (self.received, told.received, QUIET))
        return any(_moved(*pair) for pair in (*pairs, (self.rtt, told.rtt, 100)))

    def data(self, now: datetime) -> dict[str, Any]:
        """As the claim's status has it."""
        return {
            "time": now.isoformat(timespec="seconds").replace("+00:00", "Z"),
            "seconds": self.seconds,
            "sentBytesPerSecond": self.sent,
            "receivedBytesPerSecond": self.received,
            "rttMicroseconds": self.rtt,
            "retransmits": self.retransmits,
            "encrypted": self.encrypted,
        }


def numbers(before: Sample, now: Sample) -> Numbers | None:
    """What the link did between; None when it is another link by now, or no time has passed."""
    old, new, seconds = before.counters, now.counters, now.at - before.at
    sent, received = new.sent - old.sent, new.received - old.received
    again = new.retransmits - old.retransmits
    if min(sent, received, again) < 0 or seconds <= 0:
        return None
    rates = (round(sent / seconds), round(received / seconds))
    return Numbers(*rates, new.rtt, again, max(1, round(seconds)), new.encrypted)


def _moved(now: int, told: int, small: int) -> bool:
    """By more than CHANGE; what stays below `small` has not."""
    if max(now, told) < small:
        return False
    return abs(now - told) > CHANGE * max(told, small)
