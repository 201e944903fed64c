# SPDX-License-Identifier: Apache-2.0
"""Many claims of one silent node: one packet a second, and all of them back when it answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio

from tests.fakes.kube import FakeKube
from tests.fakes.uevents import FakeUevents
from tests.unit.agent.test_peers import node_at
from tests.waiting import until
from usbdra.agent import peers
from usbdra.agent.knocking import Knocker, Scouts
from usbdra.agent.peers import Dialler
from usbdra.agent.supervisor import Cause, Pauses, Supervisor
from usbdra.discovery.uevent import UeventHub
from usbdra.errors import Unreachable
from usbdra.kube.types import NODE
from usbdra.plugin.contracts import Order
from usbdra.state.claims import ClaimRecord, ClaimRef, Phase
from usbdra.transport import sockets
from usbdra.transport.ktls import Encryption
from usbdra.types import ClaimUid, DeviceName, Endpoints, Hub, NodeName

A = NodeName("node-a")
REFS = [ClaimRef("lab", f"stick-{n}", ClaimUid(f"uid-{n}")) for n in range(16)]
KNOCKING_ALONE = Pauses(first=3600.0, longest=3600.0)


class Node:
    """The other node, and what reached it: dials, and knocks, which the test answers."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.up = True
        self.addresses = {"10.0.0.1"}
        self.dialled: list[str] = []
        self.knocked: list[str] = []
        self.answers: asyncio.Queue[bool] = asyncio.Queue()
        patch.setattr(peers, "dial", self._dial)
        patch.setattr(sockets, "answers", self._answers)

    async def _dial(self, host: str, port: int, *, progress: Any, **_: object) -> Node:
        self.dialled.append(host)
        await asyncio.sleep(0)
        if not self.up or host not in self.addresses:
            raise Unreachable(f"{host} does not answer")
        progress("connect", 0.0)
        await asyncio.sleep(0)
        return self

    async def _answers(self, address: str, port: int, seconds: float) -> bool:
        self.knocked.append(address)
        return await self.answers.get()

    host = "10.0.0.1"
    encrypted = True
    timings = ()

    async def grant(self, device: str, **_: object) -> str:
        return device

    def take_socket(self) -> str:
        return "socket"

    async def __aenter__(self) -> Node:
        return self

    async def __aexit__(self, *_: object) -> None: ...


class Agent:
    """A supervisor and a dialler, and sixteen claims with a device of the node each."""

    def __init__(self, api: FakeKube, hub: UeventHub) -> None:
        self.dialler = Dialler(api, lambda: None, 3241, Encryption.REQUIRED)  # type: ignore[arg-type,return-value]
        self.attempts = 0
        self.supervisor = Supervisor(
            self,
            self.restore,
            hub,
            random=lambda: 0.5,
            pauses=KNOCKING_ALONE,
            answers=lambda ref: self.dialler.answers(A),
        )

    def link_ended(self, link: Endpoints) -> ClaimRef | None:
        return None

    async def check(self) -> Sequence[ClaimRef]:
        return ()

    def lacks_local(self, uid: ClaimUid) -> bool:
        return False

    async def restore(self, ref: ClaimRef) -> ClaimRecord:
        self.attempts += 1
        order = Order(ref, DeviceName("stick"), A, Hub.HIGH, None, True)
        await self.dialler.connect(order)
        return ClaimRecord(ref, Phase.PREPARED, "boot", ())


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(monkeypatch)


@pytest.fixture
def api() -> FakeKube:
    made = FakeKube()
    made.put(NODE, node_at("10.0.0.1"))
    return made


@pytest_asyncio.fixture
async def agent(node: Node, api: FakeKube) -> AsyncIterator[Agent]:
    hub = UeventHub(FakeUevents())
    hub.start()
    made = Agent(api, hub)
    await made.restore(REFS[0])  # the node was reached once
    node.dialled.clear()
    made.attempts = 0
    task = asyncio.create_task(made.supervisor.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    hub.close()


async def lose_all(agent: Agent, node: Node) -> None:
    """All links end at once, and each claim finds that nobody answers."""
    node.up = False
    for ref in REFS:
        agent.supervisor.restore(ref, Cause.LINK)
    await until(lambda: agent.attempts == len(REFS) and bool(node.knocked))


async def test_r23_sixteen_claims_of_a_silent_node_cost_one_dial_a_second(
    agent: Agent, node: Node
) -> None:
    await lose_all(agent, node)
    assert node.dialled == ["10.0.0.1"], "one went first"
    for number in range(2, 6):
        node.answers.put_nowait(False)
        await until(lambda: len(node.knocked) == number)  # noqa: B023
        assert agent.supervisor.restoring == 16
    node.up = True
    node.answers.put_nowait(True)
    await until(lambda: agent.supervisor.restoring == 0)
    assert len(node.knocked) == 5
    assert len(node.dialled) == 1 + 16
    assert agent.attempts == 32, "each came back by its first attempt after the answer"


async def test_a_node_that_is_knocked_at_is_not_dialled_besides(agent: Agent, node: Node) -> None:
    await lose_all(agent, node)
    order = Order(REFS[0], DeviceName("new"), A, Hub.HIGH, None, True)
    with pytest.raises(Unreachable, match="node-a does not answer; it is tried each second"):
        await agent.dialler.connect(order)
    assert len(node.dialled) == 1


async def test_a_silent_node_that_came_back_elsewhere_is_found(
    agent: Agent, node: Node, api: FakeKube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "KNOCKS_AN_ADDRESS", 3)
    await lose_all(agent, node)
    api.put(NODE, node_at("10.0.0.9"))
    node.addresses, node.up = {"10.0.0.9"}, True
    for answer in (False, False, False, True):
        node.answers.put_nowait(answer)
    await until(lambda: agent.supervisor.restoring == 0)
    assert node.knocked == ["10.0.0.1"] * 3 + ["10.0.0.9"]
    assert node.dialled == ["10.0.0.1"] + ["10.0.0.9"] * 16


async def test_who_waits_last_ends_the_knocking() -> None:
    begun, over = 0, asyncio.Event()

    async def knock(node: NodeName, number: int) -> bool:
        nonlocal begun
        begun += 1
        try:
            return bool(await asyncio.Future())
        finally:
            over.set()

    knocker = Knocker(knock)
    waiting = [asyncio.create_task(knocker.answers(A)) for _ in range(2)]
    await until(lambda: begun == 1)
    waiting[0].cancel()
    await asyncio.wait(waiting[:1])
    assert not over.is_set()
    with pytest.raises(Unreachable):
        knocker.require(A)
    waiting[1].cancel()
    await asyncio.wait(waiting)
    await over.wait()
    knocker.require(A)


async def test_a_scout_that_is_called_back_costs_the_others_nothing() -> None:
    scouts, went = Scouts(), asyncio.Event()

    async def go() -> None:
        async with scouts.first("10.0.0.1"):
            went.set()
            await asyncio.Future()

    first = asyncio.create_task(go())
    await went.wait()
    went.clear()
    second = asyncio.create_task(go())
    await asyncio.sleep(0)
    assert not went.is_set()
    first.cancel()
    await went.wait()
    second.cancel()
    await asyncio.wait([first, second])
