# SPDX-License-Identifier: Apache-2.0
"""What the controller of a cluster brings to a host outside it, and is told there."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from usbdra.exporter.broker import Peer
from usbdra.exporter.editions import Editions
from usbdra.exporter.renewal import HostRenewal
from usbdra.exporter.visits import Visits
from usbdra.state.exports import Session
from usbdra.types import CONTROLLER, ClaimUid, DeviceName, NodeName
from usbdra.usbip.errands import Reset, ResetAnswer
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


class Resets:
    """See HostResets: what was asked for."""

    def __init__(self) -> None:
        self.asked: list[Reset] = []

    async def __call__(self, peer: Peer, asked: Reset) -> ResetAnswer:
        self.asked.append(asked)
        return ResetAnswer(asked.word, "Reset", "reset by its host")


def made(
    path: Path, sessions: Sessions, editions: Editions, resets: Resets | None = None
) -> Visits:
    return Visits(HostRenewal(path, "pi"), sessions, editions, resets or Resets())


async def test_a_reset_is_answered_at_once(tmp_path: Path) -> None:
    editions, resets = Editions(), Resets()
    visits = made(tmp_path, Sessions(), editions, resets)
    asked = InventoryRequest(seen=editions.now, wait=300, reset=Reset("stick", "now"))
    told = await visits(LEADER, asked)
    assert told.reset == ResetAnswer("now", "Reset", "reset by its host")
    assert (await visits(replace(LEADER, node=NodeName("node-b")), asked)).reset is None
    assert len(resets.asked) == 1


async def test_the_controller_is_told_of_sessions_and_ends_those_that_are_over(
    tmp_path: Path,
) -> None:
    sessions = Sessions()
    editions = Editions()
    visits = made(tmp_path, sessions, editions)
    told = await visits(LEADER, InventoryRequest())
    running = (HeldSession("k1", "stick", CLAIM, "node-b"),)
    assert told == Inventory(sessions=running, edition=editions.now)
    told = await visits(LEADER, InventoryRequest(over=("k1", "none")))
    assert told == Inventory(edition=editions.now)
    assert list(sessions.held) == ["k2"]


@pytest.mark.parametrize("who", ["node-b", "outside/pi"])
async def test_nobody_else_is_told_or_ends_anything(tmp_path: Path, who: str) -> None:
    sessions = Sessions()
    editions = Editions()
    visits = made(tmp_path, sessions, editions)
    peer = Peer("192.0.2.1", 1, NodeName(who), True)
    asked = InventoryRequest(over=("k1",), seen=editions.now, wait=300)
    assert await visits(peer, asked) == Inventory()
    assert list(sessions.held) == ["k1", "k2"]


async def test_the_controller_waits_for_news_when_it_asks_to(tmp_path: Path) -> None:
    sessions, editions = Sessions(), Editions()
    visits = made(tmp_path, sessions, editions)
    first = (await visits(LEADER, InventoryRequest())).edition
    waiting = asyncio.create_task(visits(LEADER, InventoryRequest(seen=first, wait=300)))
    await asyncio.sleep(0)
    assert not waiting.done()
    editions.changed()
    second = (await waiting).edition
    assert second not in ("", first)
    # What it has not seen is told at once, also after a restart of this program.
    assert (await visits(LEADER, InventoryRequest(seen=first, wait=300))).edition == second
    again = made(tmp_path, sessions, Editions())
    assert (await again(LEADER, InventoryRequest(seen=second, wait=300))).edition != second


async def test_one_visitor_waits_at_a_time(tmp_path: Path) -> None:
    visits = made(tmp_path, Sessions(), Editions())
    edition = (await visits(LEADER, InventoryRequest())).edition
    asked = InventoryRequest(seen=edition, wait=300)
    former = asyncio.create_task(visits(LEADER, asked))
    await asyncio.sleep(0)
    later = asyncio.create_task(visits(LEADER, asked))
    assert (await former).edition == edition
    assert not later.done()
    later.cancel()
