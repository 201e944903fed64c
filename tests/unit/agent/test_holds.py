# SPDX-License-Identifier: Apache-2.0
"""A port in use keeps its device's name, and what comes to it meanwhile is nobody's (R32)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.fakes.sysfs import FakeDevice, SysTree
from tests.waiting import until
from usbdra.agent.holds import Holds
from usbdra.discovery.inventory import Inventory
from usbdra.errors import IdentityChanged
from usbdra.state.claims import ClaimRecord, ClaimRef, DeviceRecord, Phase, Route
from usbdra.state.exports import Session
from usbdra.types import ClaimUid, DeviceName, NodeName, Offer
from usbdra.usbip.extension import ClaimRef as WireClaim

CORAL, LOADED = ("1a6e", "089a"), ("18d1", "9302")
REF = ClaimRef("lab", "tpu", ClaimUid("uid-1"))
SESSION = Session("k", "claim lab/tpu", WireClaim("lab", "tpu", REF.uid), NodeName("node-b"))


class Node:
    """An inventory with holds; `dead` says that the claim of a session is over."""

    def __init__(self, hub: FakeDevice, root: Path) -> None:
        self.hub = hub
        self.inventory = Inventory(root, node="a")
        self.records: dict[ClaimUid, ClaimRecord] = {}
        self.dead = False
        self.asked = 0
        self.changes = 0
        self.device = self.plug(CORAL)
        self.name = self.offer().name
        self.holds = Holds(
            self.inventory, self.records.values, self.outlived, self.changed, pauses=(0.002, 0.01)
        )

    async def outlived(self, name: DeviceName, session: Session) -> bool:
        assert (name, session) == (self.name, SESSION)
        self.asked += 1
        return self.dead

    def changed(self) -> None:
        self.changes += 1

    def plug(self, ids: tuple[str, str]) -> FakeDevice:
        device = self.hub.plug(2, vendor=ids[0], product=ids[1])
        self.inventory.resync()
        return device

    def becomes(self, ids: tuple[str, str]) -> None:
        """It goes and comes back as another device at the same port."""
        self.device.unplug()
        self.inventory.resync()
        self.device = self.plug(ids)
        self.holds.devices_changed()

    def offer(self) -> Offer:
        (offer,) = self.inventory.snapshot.offers
        return offer

    @property
    def syspath(self) -> str:
        return f"/sys{self.device.devpath}"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    tree = SysTree(tmp_path)
    return Node(tree.controller("0000:00:14.0").root_hub(bus=1), tmp_path)


@asynccontextmanager
async def running(node: Node) -> AsyncIterator[None]:
    task = asyncio.create_task(node.holds.run())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def claim_of(node: Node, syspath: str = "") -> Mapping[ClaimUid, ClaimRecord]:
    device = DeviceRecord(
        "usb", "usb-a", node.name, node.name, NodeName("a"), Route.DIRECT, syspath=syspath
    )
    return {REF.uid: ClaimRecord(REF, Phase.PREPARED, "boot", (device,))}


async def test_r32_a_claims_device_that_comes_back_as_another_is_not_offered(node: Node) -> None:
    node.records.update(claim_of(node, syspath=node.syspath))
    node.holds.apply()
    assert node.offer().usable
    node.becomes(LOADED)
    assert (node.offer().usable, node.offer().reason) == (
        False,
        f"identity changed: this port is in use as {node.name}",
    )
    with pytest.raises(IdentityChanged, match=f"{node.name} came back as 18d1:9302 at 1-2"):
        node.inventory.snapshot.require_face(node.name)
    node.becomes(CORAL)
    assert (node.offer().usable, node.offer().name) == (True, node.name)
    node.inventory.snapshot.require_face(node.name)
    node.becomes(LOADED)
    node.records.clear()
    node.holds.apply()
    assert node.offer().usable
    assert node.changes == 2


async def test_a_claim_that_never_had_its_device_holds_no_port(node: Node) -> None:
    node.records.update(claim_of(node))
    node.holds.apply()
    assert node.changes == 0


async def test_r32_a_device_lent_to_another_node_keeps_its_port_while_the_claim_lives(
    node: Node,
) -> None:
    async with running(node):
        node.holds.taken(node.syspath, node.name, SESSION)
        node.holds.left(node.syspath)  # it re-enumerates: the link is over
        await asyncio.sleep(0.005)
        assert node.asked == 0, "no stranger, no question"
        node.becomes(LOADED)
        await until(lambda: node.asked >= 3)
        assert not node.offer().usable
        node.becomes(CORAL)
        assert node.offer().usable
        await asyncio.sleep(0.015)
        asked = node.asked
        await asyncio.sleep(0.03)
        assert node.asked == asked
        node.becomes(LOADED)
        node.dead = True
        await until(lambda: node.offer().usable)


async def test_a_running_session_is_not_asked_about(node: Node) -> None:
    async with running(node):
        node.holds.taken(node.syspath, node.name, SESSION)
        node.becomes(LOADED)
        await asyncio.sleep(0.01)
        assert node.asked == 0
        assert not node.offer().usable


async def test_a_session_without_a_claim_leaves_nothing(node: Node) -> None:
    node.holds.taken(node.syspath, node.name, Session("k", "usbdra attach on b"))
    node.holds.left(node.syspath)
    node.holds.left(node.syspath)
    node.becomes(LOADED)
    assert node.offer().usable
