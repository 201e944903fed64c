# SPDX-License-Identifier: Apache-2.0
"""What the controller of a cluster brings to a host outside it, and is told there."""

from __future__ import annotations

from pathlib import Path

import pytest

from usbdra.exporter.broker import Peer
from usbdra.exporter.renewal import HostRenewal
from usbdra.exporter.visits import Visits
from usbdra.state.exports import Session
from usbdra.types import CONTROLLER, ClaimUid, DeviceName, NodeName
from usbdra.usbip.extension import ClaimRef, HeldSession, Inventory, InventoryRequest

CLAIM = ClaimRef("lab", "one", ClaimUid("u1"))
LEADER = Peer("192.0.2.1", 1, CONTROLLER, True)


class Sessions:
    """One session for a claim, one of somebody without."""

    def __init__(self) -> None:
        self.held = {
            "k1": Session("k1", "claim lab/one", CLAIM, NodeName("node-b")),
            "k2": Session("k2", "somebody"),
        }

    def sessions(self) -> list[tuple[DeviceName, Session]]:
        return [(DeviceName("stick"), one) for one in self.held.values()]

    async def end(self, key: str) -> None:
        self.held.pop(key, None)


async def test_the_controller_is_told_of_sessions_and_ends_those_that_are_over(
    tmp_path: Path,
) -> None:
    sessions = Sessions()
    visits = Visits(HostRenewal(tmp_path, "pi"), sessions)
    told = await visits(LEADER, InventoryRequest())
    assert told == Inventory(sessions=(HeldSession("k1", "stick", CLAIM, "node-b"),))
    assert await visits(LEADER, InventoryRequest(over=("k1", "none"))) == Inventory()
    assert list(sessions.held) == ["k2"]


@pytest.mark.parametrize("who", ["node-b", "outside/pi"])
async def test_nobody_else_is_told_or_ends_anything(tmp_path: Path, who: str) -> None:
    sessions = Sessions()
    visits = Visits(HostRenewal(tmp_path, "pi"), sessions)
    peer = Peer("192.0.2.1", 1, NodeName(who), True)
    assert await visits(peer, InventoryRequest(over=("k1",))) == Inventory()
    assert list(sessions.held) == ["k1", "k2"]
