# SPDX-License-Identifier: Apache-2.0
"""Lost links from the kernel's news to a whole claim: plugin, devices and supervisor together,
on the fake kernel. Nothing here knows of a loss but by what the kernel tells."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import waiting
from tests.conftest import open_descriptors
from tests.fakes.kernel import FakeKernel, Remote
from tests.fakes.links import FakeEnds
from tests.unit.agent.test_devices import NAME, Node
from tests.unit.plugin.claims import DRIVER, claim, result
from tests.unit.plugin.world import FakeApi, FakeReporter
from usbdra.agent.supervisor import Pauses, Supervisor
from usbdra.errors import PeerRefused, Unreachable, UsbdraError
from usbdra.plugin.contracts import Order, UsbFact
from usbdra.plugin.files import ClaimFiles
from usbdra.plugin.health import HealthBoard
from usbdra.plugin.locks import NodeLock
from usbdra.plugin.prepare import Preparer
from usbdra.plugin.records import Records
from usbdra.state.claims import ClaimRef, ClaimSchema, Held, Identity
from usbdra.state.store import RecordStore
from usbdra.transport.watch import LinkWatch
from usbdra.types import ClaimUid, NodeName, Speed
from usbdra.vhci.driver import VhciDriver

REF = ClaimRef("lab", "stick", ClaimUid("uid-1"))
# Less than the children of an attached device are waited for.
until = partial(waiting.until, within=3.0)
PAUSES = Pauses(first=0.001, longest=0.004, jitter=0.0)


class Agent:
    """Everything of one agent that holds a claim's devices, on the kernel of `node`."""

    def __init__(self, node: Node, path: Path, api: FakeApi) -> None:
        self.node = node
        self.reporter = FakeReporter()
        self.ends = FakeEnds()
        self.records = Records(RecordStore(path / "state", ClaimSchema()))
        self.preparer = Preparer(
            driver=DRIVER,
            node=NodeName("b"),
            boot_id="boot",
            records=self.records,
            claims=api,
            view=api,
            attacher=node.agent(),
            files=ClaimFiles(DRIVER, path / "cdi", path / "dev", lambda link: None),
            reporter=self.reporter,
            node_lock=NodeLock(path / "node.lock", self.records.load),
            board=HealthBoard(),
        )
        self.supervisor = Supervisor(
            self.preparer.losses,
            self.preparer.restore,
            node.kernel.events,
            random=lambda: 0.5,
            pauses=PAUSES,
        )
        self.links = LinkWatch(lambda: self.ends)
        self.links.listen(self.supervisor.link_ended)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Agent]:
        rows = VhciDriver(self.node.root, native=self.node.kernel.vhci)
        await self.preparer.recover(lambda: rows.table().ports)
        tasks = [asyncio.create_task(w.run()) for w in (self.supervisor, self.links)]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.preparer.aclose()

    @property
    def held(self) -> Held:
        (device,) = self.records.all()[REF.uid].devices
        assert device.held is not None
        return device.held

    def ready(self) -> tuple[str, str]:
        (device,) = self.reporter.statuses[REF.uid]
        (condition,) = device["conditions"]
        return condition["status"], condition["reason"]

    def break_link(self) -> None:
        """The connection breaks, and the kernel tells of its socket's end."""
        held = self.held
        assert held.port is not None
        self.node.kernel.vhci.lose_link(held.port)
        self.ends.end(held.link)


@pytest.fixture
def api() -> FakeApi:
    made = FakeApi()
    fact = UsbFact(NAME, NodeName("a"), Speed.HIGH, Identity("0781", "5581", "A1"))
    made.facts = {("usb-a", NAME): fact}
    made.claims["stick"] = claim(result("usb", "usb-a", NAME))
    return made


@pytest.fixture
async def agent(tmp_path: Path, api: FakeApi) -> AsyncIterator[Agent]:
    async with FakeKernel(tmp_path / "root") as kernel:
        kernel.vhci.remote = Remote(serial=b"A1")
        node = Node(tmp_path / "root", kernel)
        async with Agent(node, tmp_path, api).running() as made:
            await made.preparer.prepare(REF)
            yield made
        node.close()


def whole_as_another(agent: Agent, before: Held) -> bool:
    (device,) = agent.records.all()[REF.uid].devices
    again = device.held is not None and device.held.link != before.link
    return again and agent.ready() == ("True", "Attached")


def spec_of(path: Path) -> str:
    (spec,) = (path / "cdi").glob("*.json")
    return spec.read_text()


async def test_r24_a_broken_link_is_made_anew_and_the_files_say_so(
    agent: Agent, tmp_path: Path
) -> None:
    before, spec = agent.held, spec_of(tmp_path)
    agent.break_link()
    await until(lambda: whole_as_another(agent, before))
    assert agent.held.devnum != before.devnum
    assert agent.held.node.path in spec_of(tmp_path) != spec
    assert agent.held.port == before.port
    assert [event[1] for event in agent.reporter.events] == ["Attached", "LinkLost", "Attached"]


async def test_r34_a_device_that_resets_itself_comes_back_without_any_news_of_a_link(
    agent: Agent,
) -> None:
    before = agent.held
    assert before.port is not None
    agent.node.kernel.vhci.lose_link(before.port)  # only its uevent tells
    await until(lambda: whole_as_another(agent, before))


async def test_r25_a_flapping_link_leaves_as_much_as_a_calm_one(
    agent: Agent, tmp_path: Path
) -> None:
    def left() -> tuple[int, int, int]:
        ports = agent.node.kernel.vhci.sockets
        return ports, len(open_descriptors()), len(list((tmp_path / "state").glob("*.json")))

    async def flap() -> None:
        before = agent.held
        agent.break_link()
        await until(lambda: whole_as_another(agent, before))
        for pair in agent.node.pairs[:-1]:
            pair.peer.close()

    await flap()
    before = left()
    for _ in range(6):
        await flap()
    assert left() == before
    assert [event[1] for event in agent.reporter.events].count("LinkLost") == 7


async def test_r43_links_of_an_earlier_agent_are_watched_too(tmp_path: Path, api: FakeApi) -> None:
    async with FakeKernel(tmp_path / "root") as kernel:
        kernel.vhci.remote = Remote(serial=b"A1")
        node = Node(tmp_path / "root", kernel)
        async with Agent(node, tmp_path, api).running() as first:
            await first.preparer.prepare(REF)
        second = Agent(node, tmp_path, api)
        async with second.running():
            before = second.held
            second.break_link()
            await until(lambda: second.reporter.statuses and whole_as_another(second, before))
        node.close()


class Refusing:
    """Makes the exporter answer so from now on."""

    def __init__(self, agent: Agent, error: UsbdraError, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: UsbdraError | None = error
        self.asked = 0
        connect = agent.node.connect

        async def refused(order: Order) -> Any:
            self.asked += 1
            if self.error is not None:
                raise self.error
            return await connect(order)

        monkeypatch.setattr(agent.node, "connect", refused)


async def test_r26_a_revoked_claim_is_not_attached_again_and_can_be_given_back(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = Refusing(agent, PeerRefused("a refused: not yours", 1, "Refused"), monkeypatch)
    agent.break_link()
    await until(lambda: exporter.asked and agent.supervisor.restoring == 0)
    await asyncio.sleep(0.02)
    assert exporter.asked == 1
    assert agent.ready() == ("False", "LinkLost")
    assert agent.node.kernel.vhci.sockets == 0
    await agent.preparer.unprepare(REF)
    assert agent.records.all() == {}


async def test_r12_an_exporter_that_is_away_is_asked_until_it_is_back(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = Refusing(agent, Unreachable("no answer from a"), monkeypatch)
    before = agent.held
    agent.break_link()
    await until(lambda: exporter.asked >= 3)
    exporter.error = None
    await until(lambda: whole_as_another(agent, before))


async def test_r48_a_claim_that_is_over_is_given_back_by_the_node_itself(
    agent: Agent, api: FakeApi, tmp_path: Path
) -> None:
    api.claims.clear()
    agent.break_link()
    await until(lambda: agent.records.all() == {})
    await until(lambda: agent.supervisor.restoring == 0)
    assert agent.node.kernel.vhci.sockets == 0
    assert list((tmp_path / "cdi").glob("*.json")) == []
    assert len(agent.node.pairs) == 1


async def test_unprepare_of_a_lost_claim_ends_its_restoring(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = Refusing(agent, Unreachable("no answer from a"), monkeypatch)
    agent.break_link()
    await until(lambda: exporter.asked)
    await agent.preparer.unprepare(REF)
    await until(lambda: agent.supervisor.restoring == 0)
    assert agent.records.all() == {}
