# SPDX-License-Identifier: Apache-2.0
"""Another `agent.visibility` while devices are plugged in: a server lets no nodeName change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.api.accounts import Accounts
from tests.api.conftest import MakeNode
from tests.api.devices import PORTS
from tests.unit.slices.samples import offer
from usbdra.kube.client import KubeClient
from usbdra.kube.types import NODE, RESOURCE_SLICE
from usbdra.slices.build import SliceOptions, Visibility, build
from usbdra.slices.publish import Owner, SlicePublisher
from usbdra.types import Speed

OFFERS = [
    offer("one", serial="ONE"),
    offer("mouse", serial="MOUSE", speed=Speed.LOW, exportable=False, reason="1.5 Mbit/s"),
]


@asynccontextmanager
async def publishing(
    client: KubeClient, owner: Owner, visibility: Visibility
) -> AsyncIterator[SlicePublisher]:
    """An agent that starts with this setting, and has published."""
    options = SliceOptions(node=owner.node, visibility=visibility)
    publisher = SlicePublisher(client, owner, lambda dropped: build(OFFERS, PORTS, options))
    task = asyncio.create_task(publisher.run())
    try:
        await asyncio.wait_for(publisher.published(), 60)
        yield publisher
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def seen_by(client: KubeClient, owner: Owner) -> dict[str, tuple[str, list[str]]]:
    """Who sees each pool, and the devices in it."""
    found = (await client.list(RESOURCE_SLICE, labels=owner.selector))["items"]
    return {
        item["spec"]["pool"]["name"]: (
            item["spec"].get("nodeName") or "selected",
            [device["name"] for device in item["spec"]["devices"]],
        )
        for item in found
    }


async def test_each_change_is_published(accounts: Accounts, make_node: MakeNode) -> None:
    client, node = await accounts.admin(), make_node()
    uid = str((await client.get(NODE, node))["metadata"]["uid"])
    owner = Owner(node, uid, SliceOptions(node=node).driver)
    links = {f"usblink-{node}": (node, ["direct", "vhci-high", "vhci-super"])}
    everywhere = {
        f"usb-{node}": ("selected", ["one"]), f"usblocal-{node}": (node, ["mouse"]), **links,
    }  # fmt: skip
    here = {f"usb-{node}": (node, ["mouse", "one"]), **links}
    for visibility, wanted in (
        (Visibility.CLUSTER, everywhere), (Visibility.NODE, here), (Visibility.CLUSTER, everywhere),
    ):  # fmt: skip
        async with publishing(client, owner, visibility) as publisher:
            assert publisher.stats.errors == 0
            assert await seen_by(client, owner) == wanted
