# SPDX-License-Identifier: Apache-2.0
"""Assignments of this node's devices: followed, and turned into taints."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.fakes.kube import FakeKube
from tests.waiting import patience
from usbdra.agent.assignments import Assignments
from usbdra.agent.nodeobjects import NodeObjects
from usbdra.errors import Refused
from usbdra.kube import errors
from usbdra.kube.custom import Contract
from usbdra.slices.build import Taint
from usbdra.types import DeviceName, NodeName

NAMES = Contract("example.com")
NODE = NodeName("node-a")
STICK, KEY = DeviceName("usb-stick"), DeviceName("usb-key")
UNASSIGNED = (Taint("example.com/unassigned", ""),)


def device(name: str, namespace: str = "", *, node: str = NODE, object_name: str = "") -> dict:  # type: ignore[type-arg]
    status = {"nodeName": node, "attributes": {"name": name}}
    meta = {"name": object_name or name}
    return {"metadata": meta, "spec": {"assignedNamespace": namespace}, "status": status}


class Following:
    def __init__(self, kube: FakeKube, *, required: bool) -> None:
        self.objects = NodeObjects(kube, NAMES, NODE)
        self.part = Assignments(self.objects, NAMES, required=required)
        self.changed = asyncio.Event()
        self.part.on_change = self.changed.set

    async def next(self) -> None:
        async with patience():
            await self.changed.wait()
        self.changed.clear()


@asynccontextmanager
async def following(kube: FakeKube, *, required: bool = True) -> AsyncIterator[Following]:
    made = Following(kube, required=required)
    task = asyncio.create_task(made.objects.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_an_assignment_is_followed_and_fences() -> None:
    kube = FakeKube()
    kube.put(NAMES.node_device, device(STICK, "lab"))
    async with following(kube) as made:
        await made.next()
        assert made.part.namespace(STICK) == "lab"
        made.part.require(STICK, "lab")
        with pytest.raises(Refused, match="another namespace"):
            made.part.require(STICK, "other")
        kube.put(NAMES.node_device, device(STICK, "other"))
        await made.next()
        made.part.require(STICK, "other")
        kube.drop(NAMES.node_device, STICK)
        await made.next()
        assert made.part.namespace(STICK) is None


async def test_taints_by_what_is_known() -> None:
    kube = FakeKube()
    kube.put(NAMES.node_device, device(STICK, "lab"))
    kube.put(NAMES.node_device, device(KEY))
    new = DeviceName("usb-new")
    for required, key_taints in ((True, {KEY: UNASSIGNED}), (False, {})):
        async with following(kube, required=required) as made:
            assert made.part.taints([STICK]) == {STICK: UNASSIGNED}, "nothing is known yet"
            await made.next()
            assert made.part.taints([STICK, KEY, new]) == {
                STICK: (Taint("example.com/assigned", "lab"),),
                new: UNASSIGNED,
                **key_taints,
            }


async def test_two_alike_on_two_nodes_are_told_apart() -> None:
    kube = FakeKube()
    kube.put(NAMES.node_device, device(STICK, "theirs", node="node-b"))
    kube.put(NAMES.node_device, device(STICK, "ours", object_name="usb-stick-node-a"))
    async with following(kube) as made:
        await made.next()
        assert made.part.namespace(STICK) == "ours"


async def test_a_server_that_is_away_changes_nothing() -> None:
    kube = FakeKube()
    kube.put(NAMES.node_device, device(STICK, "lab"))
    async with following(kube) as made:
        await made.next()
        kube.fail(errors.ApiUnavailable("watch", 0, "NoAnswer", "away"))
        await asyncio.sleep(0)
        assert made.part.namespace(STICK) == "lab"
