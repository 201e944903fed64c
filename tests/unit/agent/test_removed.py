# SPDX-License-Identifier: Apache-2.0
"""Sessions of removed nodes end, those of nodes that stay do not, and nobody else is watched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.fakes.kube import FakeKube
from tests.waiting import patience
from usbdra.agent.removed import RemovedNodes
from usbdra.kube import errors
from usbdra.kube.types import NODE
from usbdra.state.exports import Session
from usbdra.types import DeviceName, NodeName

B, C = NodeName("b"), NodeName("c")
STICK, KEY = "/devices/usb1/1-1", "/devices/usb1/1-2"


class World:
    """The broker's and the inventory's side."""

    def __init__(self) -> None:
        self.kube = FakeKube()
        for name in (B, C):
            self.kube.put(NODE, {"metadata": {"name": name}})
        self.told: list[str] = []
        self.ended: asyncio.Queue[NodeName] = asyncio.Queue()
        self.part = RemovedNodes(self.kube, self.end, self)

    def taken(self, syspath: str, name: DeviceName, session: Session) -> None:
        self.told.append(f"taken {name}")

    def left(self, syspath: str) -> None:
        self.told.append(f"left {syspath}")

    async def end(self, node: NodeName) -> None:
        for syspath, user in list(self.part._users.items()):
            if user == node:
                self.part.left(syspath)
        await self.ended.put(node)

    def use(self, syspath: str, node: NodeName | None) -> None:
        self.part.taken(syspath, DeviceName("stick"), Session("key", "holder", None, node))

    async def next(self) -> NodeName:
        async with patience():
            return await self.ended.get()


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.part.aclose()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_removed_node_loses_its_sessions(world: World) -> None:
    world.use(STICK, B)
    world.use(KEY, C)
    await settle()
    world.kube.drop(NODE, B)
    assert await world.next() == B
    await settle()
    assert world.ended.empty()
    assert world.part._users == {KEY: C}
    assert world.told == ["taken stick", "taken stick", f"left {STICK}"]


async def test_a_node_made_anew_is_another_one(world: World) -> None:
    world.use(STICK, B)
    await settle()
    world.kube.drop(NODE, B)
    world.kube.put(NODE, {"metadata": {"name": B}})
    assert await world.next() == B


async def test_a_session_of_an_earlier_agent_whose_node_went_meanwhile(world: World) -> None:
    world.use(STICK, NodeName("gone"))
    assert await world.next() == "gone"


async def test_a_change_of_status_and_a_server_that_is_away_end_nothing(world: World) -> None:
    world.use(STICK, B)
    await settle()
    node = world.kube.all(NODE)[0]
    world.kube.put(NODE, {**node, "status": {"phase": "Running"}})
    world.kube.fail(errors.ApiUnavailable("watch", 0, "NoAnswer", "away"))
    await settle()
    assert world.ended.empty()


async def test_only_nodes_with_sessions_are_watched(world: World) -> None:
    world.use(STICK, B)
    world.use(KEY, None)
    await settle()
    assert world.part.seen(B) is not None
    assert world.part.seen(C) is None
    world.use(STICK, C)  # a rightful claim of another node took it over
    await settle()
    world.kube.drop(NODE, B)
    world.kube.drop(NODE, C)
    assert await world.next() == C
    await settle()
    assert world.ended.empty(), "b uses nothing any more"


async def test_the_end_of_one_of_two_sessions_is_not_the_end_of_the_node(world: World) -> None:
    world.use(STICK, B)
    world.use(KEY, B)
    await settle()
    world.part.left(STICK)
    world.kube.drop(NODE, B)
    assert await world.next() == B


@pytest.mark.parametrize("syspath", [STICK])
async def test_an_end_that_is_told_twice_is_no_error(world: World, syspath: str) -> None:
    world.use(syspath, B)
    world.part.left(syspath)
    world.part.left(syspath)
    assert world.part._users == {}
    assert world.told == ["taken stick", *[f"left {syspath}"] * 2]
