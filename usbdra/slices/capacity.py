# SPDX-License-Identifier: Apache-2.0
"""How many ports of each hub claims may use. Pure.

What counts is what the kernel's rows show, less what is broken, less what foreign tools hold; a
port that one of our own claims sits on stays in the count, since the scheduler keeps the claim's
share itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from usbdra.types import Hub


class Count(Protocol):
    """vhci/table.py's HubCount, as far as it matters here."""

    @property
    def capacity(self) -> int:
        """Ports that work."""
        ...


def claimable(
    hubs: Mapping[Hub, Count], limit: int | None, foreign: Mapping[Hub, int] | None = None
) -> dict[Hub, int]:
    """Ports by hub: capacity less foreign ones, at most `limit` (None: no limit) of each."""
    taken = foreign or {}
    counts = {hub: count.capacity - taken.get(hub, 0) for hub, count in hubs.items()}
    return {hub: max(0, n if limit is None else min(n, limit)) for hub, n in counts.items()}
