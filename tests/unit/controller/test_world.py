# SPDX-License-Identifier: Apache-2.0
"""Indexes over the cluster: what a change concerns, and what is seen of a device."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.unit.controller.make import CONTRACT, NOW, STICK, claim, device, part
from usbdra.controller.acts import What
from usbdra.controller.conditions import NodeState
from usbdra.controller.names import own_name, owners
from usbdra.controller.published import Published, Reach, SlicePart
from usbdra.controller.reconcile import Namespace
from usbdra.controller.world import World
from usbdra.types import NodeName

A, B, C = NodeName("a"), NodeName("b"), NodeName("c")


@pytest.fixture
def world() -> World:
    return World(CONTRACT, timedelta(seconds=600))


def record(name: str = STICK, node: str = "a", namespace: str = "") -> dict[str, Any]:
    status = {"nodeName": node, "attributes": {"name": STICK}}
    return {"metadata": {"name": name}, "spec": {"assignedNamespace": namespace}, "status": status}


def seen(world: World, name: str = STICK) -> Published | None:
    return world.observe(name, NOW).device


def test_a_change_of_one_device_concerns_that_one(world: World) -> None:
    one, two = device(name="usb-1-1-one"), device(name="usb-1-1-two")
    world.put_slice("s", part("a", one, two))
    changed = device(name="usb-1-1-two", deviceNumber=9)
    assert world.put_slice("s", part("a", one, changed)) == {"usb-1-1-two", own_name(two.name, A)}
    assert world.put_slice("s", part("a", one, changed)) == set()


def test_r53_a_pool_that_is_being_written_is_seen_as_it_was(world: World) -> None:
    world.put_slice("s-0", part("a", device()))
    assert world.put_slice("s-0", part("a", device(bus=7), generation=2, count=2)) == set()
    assert seen(world) == device()
    world.put_slice("s-1", part("a", device(name="usb-2-2-x"), generation=2, count=2))
    assert seen(world) == device(bus=7)


def test_a_device_that_goes_to_another_pool_of_its_node_never_seems_pulled(world: World) -> None:
    world.put_slice("s", part("a", device()))
    local = device(reach=Reach.LOCAL)
    world.put_slice("l", SlicePart("usblocal-a", 1, 1, (local,)))
    world.put_slice("s", None)
    assert seen(world) == local
    world.put_slice("l", None)
    assert seen(world) is None


def test_nodes_and_namespaces_concern_the_devices_that_name_them(world: World) -> None:
    world.put(What.NODE_DEVICE, ("", STICK), record(namespace="lab"))
    assert world.put_node("a", False) == {STICK}
    assert world.put_node("b", True) == set()
    assert world.put_namespace("lab", Namespace("u")) == {STICK}
    assert world.put_namespace("other", Namespace("u")) == set()
    found = world.observe(STICK, NOW)
    assert (found.node, found.namespaces) == (NodeState.NOT_READY, {"lab": Namespace("u")})
    world.put(What.NODE_DEVICE, ("", STICK), record())
    assert world.put_namespace("lab", None) == set()


def test_a_claim_concerns_its_device_only_when_its_use_changes(world: World) -> None:
    world.put_slice("s", part("a", device()))
    held = claim("lab", "c", pods=("p",))
    assert STICK in world.put(What.CLAIM, ("lab", "c"), held)
    assert world.put(What.CLAIM, ("lab", "c"), held) == set()
    (use,) = world.observe(STICK, NOW).uses
    assert (use.claim, use.consumers[0].name) == ("c", "p")
    assert STICK in world.put(What.CLAIM, ("lab", "c"), None)
    assert world.observe(STICK, NOW).uses == []


def test_a_use_stays_with_its_device_when_that_is_pulled(world: World) -> None:
    """Also with two devices of one name: each use goes with its own node's."""
    other = own_name(STICK, B)
    world.put_slice("a", part("a", device()))
    world.put_slice("b", part("b", device("b")))
    world.put(What.NODE_DEVICE, ("", STICK), record())
    world.put(What.NODE_DEVICE, ("", other), record(other, "b"))
    world.put(What.CLAIM, ("lab", "on-b"), claim("lab", "on-b", node="b"))
    for _ in range(2):
        assert [use.claim for use in world.observe(other, NOW).uses] == ["on-b"]
        assert world.observe(STICK, NOW).uses == []
        world.put_slice("b", None)


@pytest.mark.parametrize(
    ("nodes", "known", "plain"),
    [
        ({A}, {}, A),
        ({B, A}, {}, A),  # both at once: the same choice everywhere
        ({A, B}, {STICK: "b"}, B),  # it was there before
        ({A, B}, {STICK: "c"}, A),  # taken along from c
        ({A, B}, {STICK: "c", own_name(STICK, A): "a"}, B),  # a's is known as another
        ({A}, {STICK: "c", own_name(STICK, A): "a"}, None),
    ],
)
def test_r31_whose_the_plain_name_is(
    nodes: set[NodeName], known: dict[str, str], plain: NodeName | None
) -> None:
    found = owners(STICK, nodes, known)
    assert [node for node, name in found.items() if name == STICK] == ([plain] if plain else [])
    assert len(set(found.values())) == len(nodes)
