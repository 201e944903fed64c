# SPDX-License-Identifier: Apache-2.0
"""Devices of claims in running containers of the node: put in, moved, taken out, told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from tests.unit.agent.test_plugs import CLAIM, NULL, ONE, ZERO, World, held, record
from tests.waiting import until
from usbdra.agent.podplugs import ClaimContainers, PodPlugs
from usbdra.containers.live import Gone, Problem, Wanted
from usbdra.containers.rules import DeviceNumber
from usbdra.errors import KernelUnsupported, NotFound
from usbdra.state.claims import DeviceNode, Held, Phase
from usbdra.types import ChildNode, ClaimUid

FIRST, SECOND = "1" * 64, "2" * 64
TTY = ChildNode("tty", "/dev/ttyACM3", 166, 3, 0)


class FakeContainers:
    """What each running container has, by its identifier: paths of nodes, and links."""

    def __init__(self, *running: str) -> None:
        self.nodes: dict[str, dict[str, DeviceNumber]] = {name: {} for name in running}
        self.links: dict[str, dict[str, str]] = {name: {} for name in running}
        self.claims: list[ClaimUid] = []
        self.error: Exception | None = None
        self.updates = 0

    def update_claim(self, claim: ClaimUid, wanted: Mapping[str, Wanted]) -> list[Problem]:
        self.claims.append(claim)
        return []

    def restart_claim(self, claim: ClaimUid, requests: Collection[str]) -> list[Problem]:
        self.claims.append(claim)
        return []

    def update(self, pod: str, name: str, wanted: Wanted) -> None:
        self.updates += 1
        if self.error is not None:
            raise self.error
        if pod != ONE or name not in self.nodes:
            raise NotFound("container does not run")
        for gone in wanted.gone:
            if self.nodes[name].get(str(gone.path)) == gone.number:
                del self.nodes[name][str(gone.path)]
        if wanted.without is not None:
            self.links[name] = {
                k: v for k, v in self.links[name].items() if not k.startswith(str(wanted.without))
            }
        self.nodes[name] |= {str(node.path): node.number for node in wanted.nodes}
        self.links[name] |= {str(k): str(v) for k, v in (wanted.links or {}).items()}


@pytest.fixture
def containers() -> FakeContainers:
    return FakeContainers(FIRST)


@pytest.fixture
async def world(tmp_path: Path, containers: FakeContainers) -> AsyncIterator[World]:
    made = World(tmp_path)
    made.pods = PodPlugs(containers)
    yield made
    await made.aclose()


async def plugged(world: World) -> None:
    """The claim's device is in the first container."""
    world.attach(container=FIRST)
    world.prepare(held(NULL))
    await until(lambda: bool(world.said().get("attached")))


def with_tty(node: DeviceNode, number: int = 2) -> Held:
    return replace(held(node, number), children=(TTY,))


async def test_nodes_and_links_go_in_and_out_again(
    world: World, containers: FakeContainers
) -> None:
    async with world.agent():
        world.attach("camera", container=FIRST)
        world.prepare(with_tty(NULL))
        await until(lambda: bool(world.said("camera").get("attached")))
        assert containers.nodes[FIRST] == {
            "/dev/null": DeviceNumber(1, 3), "/dev/ttyACM3": DeviceNumber(166, 3),
        }  # fmt: skip
        assert containers.links[FIRST] == {
            "/dev/usbdra/camera/device": "/dev/null",
            "/dev/usbdra/camera/tty0": "/dev/ttyACM3",
        }
        assert world.said("camera") == {
            "attached": True, "podUID": ONE, "claimUID": CLAIM, "containerID": FIRST,
        }  # fmt: skip
        await world.plugs.release(CLAIM)
        assert (containers.nodes[FIRST], containers.links[FIRST]) == ({}, {})


async def test_what_is_back_under_other_numbers_takes_the_place(
    world: World, containers: FakeContainers
) -> None:
    async with world.agent():
        world.attach(container=FIRST)
        world.prepare(held(NULL))
        await until(lambda: "/dev/null" in containers.nodes[FIRST])
        world.prepare(held(ZERO, 3))
        await until(lambda: containers.nodes[FIRST] == {"/dev/zero": DeviceNumber(1, 5)})
        assert containers.links[FIRST] == {"/dev/usbdra/one/device": "/dev/zero"}


async def test_what_is_lost_is_not_put_in_before_the_record_says_so(
    world: World, containers: FakeContainers
) -> None:
    async with world.agent():
        world.intact = False
        world.attach(container=FIRST)
        world.prepare(held(NULL))
        await until(lambda: world.said().get("reason") == "LinkLost")
        assert containers.nodes[FIRST] == {}
        world.intact = True
        await until(lambda: bool(world.said().get("attached")))


async def test_another_agent_takes_out_what_its_records_say(
    world: World, containers: FakeContainers
) -> None:
    async with world.agent():
        await plugged(world)
    world.claims[CLAIM] = record(CLAIM, None, Phase.RELEASING)
    async with world.agent():
        await until(lambda: containers.nodes[FIRST] == {})
        await until(lambda: world.store.load(CLAIM) is None)


async def test_a_container_that_starts_again_gets_it_in_its_new_life(
    world: World, containers: FakeContainers
) -> None:
    async with world.agent():
        await plugged(world)
        containers.nodes, containers.links = {SECOND: {}}, {SECOND: {}}
        world.attach(container=SECOND)
        await until(lambda: world.said().get("containerID") == SECOND)
        assert containers.nodes[SECOND] == {"/dev/null": DeviceNumber(1, 3)}


async def test_trouble_is_told_and_tried_again(world: World, containers: FakeContainers) -> None:
    async with world.agent():
        containers.error = KernelUnsupported("no device program")
        world.attach(container=FIRST)
        world.prepare(held(NULL))
        await until(lambda: world.said().get("reason") == "KernelUnsupported")
        assert world.said()["message"] == "no device program"
        containers.error = None
        await until(lambda: bool(world.said().get("attached")))


async def test_an_agent_that_sees_no_containers_says_which_value(world: World) -> None:
    world.pods = None
    async with world.agent():
        world.attach(container=FIRST)
        world.prepare(held(NULL))
        await until(lambda: "agent.runningContainers" in world.said().get("message", ""))


async def test_r60_what_is_lost_is_out_of_its_reach_at_once(
    world: World, containers: FakeContainers
) -> None:
    async with world.agent():
        await plugged(world)
        both = ClaimContainers.of_node(containers, world.plugs.plugged)
        assert both is not None
        gone = Gone(PurePosixPath("/dev/null"), DeviceNumber(1, 3))
        assert both.update_claim(CLAIM, {"usb": Wanted(gone=(gone,))}) == []
        assert containers.claims == [CLAIM]
        assert containers.nodes[FIRST] == {}
        assert both.restart_claim(CLAIM, {"usb"}) == []
        assert containers.claims == [CLAIM, CLAIM]
        updates = containers.updates
        assert both.update_claim(CLAIM, {"usb": Wanted()}) == []
        assert both.update_claim(ClaimUid("other"), {"usb": Wanted(gone=(gone,))}) == []
        assert containers.updates == updates
        containers.nodes.clear()
        assert both.update_claim(CLAIM, {"usb": Wanted(gone=(gone,))}) == []


def test_without_plugs_or_containers_there_is_nothing_to_add(containers: FakeContainers) -> None:
    assert ClaimContainers.of_node(containers, None) is containers
    assert ClaimContainers.of_node(None, lambda _: None) is None
