# SPDX-License-Identifier: Apache-2.0
"""The least time that a transfer can take, by arithmetic, and what that time is. Pure.

Of a link without a delay some figures are taken: seconds of a transfer however small (`fixed`) and
of a byte (`byte`), by a line through the sizes, one transfer at a time; and the best rate of all
sizes and depths (`best`). From them follows what a delay or a loss must do: `depth` transfers share
a round trip; no more than `best` comes through; and TCP with losses has a window of 1.22 segments
by the root of their share (Mathis, Semke, Mahdavi, Ott 1997), so much a round trip. The largest is
the limit.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bench.growth import line

SEGMENT = 1448
"""Bytes of data in a packet of 1500: IPv4, TCP with time stamps."""
MATHIS = math.sqrt(3 / 2)
TOLD = 1.1
"""Three rounds of like links are in order one time in ten: less than this is never told."""


class Limit(NamedTuple):
    """Seconds a transfer, and what takes them."""

    seconds: float
    name: str


@dataclass(frozen=True)
class Link:
    """A link's own times, in seconds, without a delay."""

    fixed: float
    byte: float
    best: float
    carrying: str
    """What `best` is spent on."""
    trip: float
    """Seconds of a packet there and back, a part of `fixed`."""

    @classmethod
    def of(cls, measured: Mapping[tuple[int, int], float], carrying: str, trip: float) -> Link:
        """From seconds a transfer by (bytes, depth); two sizes at depth 1 at least."""
        alone = [(float(size), taken) for (size, depth), taken in measured.items() if depth == 1]
        fixed, byte = line(alone)
        best = min(taken / size for (size, _), taken in measured.items())
        return cls(max(fixed, 0.0), byte, best, carrying, trip)

    def limit(self, size: int, depth: int, delay: float, loss: float = 0.0) -> Limit:
        """The least seconds a transfer; `delay` in seconds a round trip, `loss` a part of all."""
        alone = self.fixed + size * self.byte
        limits = [
            Limit(size * self.best, self.carrying),
            Limit((alone + delay) / depth, "round trip" if delay > alone else "work of each"),
        ]
        if loss:
            window = SEGMENT * MATHIS / math.sqrt(loss)
            limits.append(Limit(size / window * (delay + self.trip), "loss"))
        return max(limits)


def verdict(found: Sequence[float], ours: Sequence[float]) -> str:
    """Whether a setting is told from ours: every round of it is beyond every round of ours, and the
    medians are TOLD apart."""
    part = statistics.median(found) / statistics.median(ours)
    if max(found) < min(ours) and part <= 1 / TOLD:
        return "faster"
    return "slower" if min(found) > max(ours) and part >= TOLD else "no difference"
