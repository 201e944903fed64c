# SPDX-License-Identifier: Apache-2.0
"""One watch for all of the agent that ask about this node's NodeUSBDevices."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.fakes.kube import FakeKube
from tests.waiting import patience
from usbdra.agent.nodeobjects import NodeObjects
from usbdra.kube.custom import Contract
from usbdra.kube.types import Object
from usbdra.kube.watch import Change, Synced
from usbdra.types import NodeName

NAMES = Contract("example.com")
NODE = NodeName("node-a")


class Counting(FakeKube):
    lists = 0

    async def list(self, *words: Any, **more: Any) -> Object:
        self.lists += 1
        return await super().list(*words, **more)


async def test_all_who_listen_hear_of_one_list_and_one_watch() -> None:
    kube = Counting()
    kube.put(NAMES.node_device, {"metadata": {"name": "stick"}, "status": {"nodeName": NODE}})
    kube.put(NAMES.node_device, {"metadata": {"name": "other"}, "status": {"nodeName": "node-b"}})
    objects, told = NodeObjects(kube, NAMES, NODE), asyncio.Event()
    heard: list[list[Change | Synced]] = [[], []]
    for each in heard:
        objects.listen(each.append)
    objects.listen(lambda event: told.set() if isinstance(event, Synced) else None)
    task = asyncio.create_task(objects.run())
    async with patience():
        await told.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert heard[0] == heard[1]
    assert [item["metadata"]["name"] for item in objects.all()] == ["stick"]
    assert kube.lists == 1
