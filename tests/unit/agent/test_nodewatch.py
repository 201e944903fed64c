# SPDX-License-Identifier: Apache-2.0
"""A node that uses a device of ours, or did lately, is known without a question; others are not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.fakes.kube import FakeKube
from usbdra.agent import nodewatch
from usbdra.agent.nodewatch import NodeWatches, Seen
from usbdra.kube.types import NODE
from usbdra.types import NodeName

B, C = NodeName("b"), NodeName("c")


class World:
    """An API server with two nodes, and who was told that one has gone."""

    def __init__(self) -> None:
        self.kube = FakeKube()
        for name in (B, C):
            self.kube.put(NODE, {"metadata": {"name": name}})
        self.gone: list[NodeName] = []
        self.watches = NodeWatches(self.kube, self.gone.append)

    def uid(self, node: NodeName) -> str:
        """What the watch says; "" when it says that there is no such node."""
        seen = self.watches.seen(node)
        assert seen is not None
        return str(seen.node["metadata"]["uid"]) if seen.node else ""

    def stored(self, node: NodeName) -> str:
        """What the server has."""
        return str(self.kube.objects["nodes", "", node]["metadata"]["uid"])


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.watches.aclose()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_held_node_is_as_the_server_has_it_now(world: World) -> None:
    assert world.watches.seen(B) is None, "nobody asked for it"
    world.watches.hold(B)
    assert world.watches.seen(B) is None, "the server has not answered"
    await settle()
    assert world.uid(B) == world.stored(B)
    assert world.watches.seen(C) is None
    world.kube.drop(NODE, B)
    await settle()
    assert world.watches.seen(B) == Seen(None)
    assert world.gone == [B]
    world.kube.put(NODE, {"metadata": {"name": B}})
    await settle()
    assert world.uid(B) == world.stored(B)
    assert world.gone == [B], "it came, it did not go again"


async def test_a_released_node_is_watched_for_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.watches.hold(B)
    await settle()
    world.watches.release(B)
    world.watches.release(B)
    assert world.uid(B) == world.stored(B)
    world.watches.hold(B)
    monkeypatch.setattr(nodewatch, "LINGER_SECONDS", 0.0)
    await settle()
    assert world.uid(B) == world.stored(B), "in use again: the end of the first use counts no more"
    world.watches.release(B)
    while world.watches.seen(B) is not None:
        await asyncio.sleep(0)
    world.kube.drop(NODE, B)
    await settle()
    assert world.gone == []


async def test_the_longest_unused_makes_room(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodewatch, "MAX_LINGERING", 2)
    nodes = [NodeName(f"n{number}") for number in range(4)]
    for node in nodes:
        world.watches.hold(node)
    await settle()
    for node in nodes[1:]:
        world.watches.release(node)
        await asyncio.sleep(0.001)  # the clock of the loop goes on
    known = [node for node in nodes if world.watches.seen(node) is not None]
    assert known == ["n0", "n2", "n3"], "n0 is in use"


async def test_a_watch_that_hears_nothing_says_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.watches.hold(B)
    await settle()
    monkeypatch.setattr(nodewatch, "FRESH_SECONDS", -1.0)
    assert world.watches.seen(B) is None


async def test_nothing_is_left_at_the_end(world: World) -> None:
    for node in (B, C):
        world.watches.hold(node)
    world.watches.release(C)
    await world.watches.aclose()
    assert world.watches.seen(B) is None
    world.watches.release(B)
