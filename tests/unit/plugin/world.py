# SPDX-License-Identifier: Apache-2.0
"""A node around the plugin: kernel, API, reports and the agent process itself, all in memory.

The kernel and the disk outlive an agent; `World.agent()` starts another one on them, and
`Killed`, raised from a step, ends one as kill -9 would: nothing gets to clean up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from usbdra.containers.live import Problem, Wanted
from usbdra.errors import NoFreePort
from usbdra.plugin.acts import Step
from usbdra.plugin.config import Target
from usbdra.plugin.contracts import DriversHook, Fact, IntentHook, Order, UsbFact
from usbdra.plugin.files import ClaimFiles
from usbdra.plugin.health import HealthBoard
from usbdra.plugin.layout import NodeLink
from usbdra.plugin.locks import NodeLock
from usbdra.plugin.prepare import Limits, Preparer
from usbdra.plugin.records import Records
from usbdra.state.claims import (
    ClaimRecord,
    ClaimRef,
    ClaimSchema,
    DeviceNode,
    DeviceRecord,
    Held,
    Identity,
    Intent,
    Route,
)
from usbdra.state.recover import Lost
from usbdra.state.store import RecordStore
from usbdra.types import (
    BusId,
    ClaimUid,
    DeviceName,
    Endpoints,
    Hub,
    NodeName,
    Port,
    PortId,
    PortState,
)

from .claims import BOOT, DRIVER, FACTS, HERE


class Killed(BaseException):
    """The process is gone at this point."""


@dataclass
class Kernel:
    """Ports with what is attached to them. Numbers of devices are never used twice."""

    ports: dict[PortId, tuple[DeviceName, Held]] = field(default_factory=dict)
    next_devnum: int = 2
    per_hub: int = 8

    def free_port(self, hub: Hub) -> PortId:
        first = 0 if hub is Hub.HIGH else self.per_hub
        for number in range(first, first + self.per_hub):
            if number not in self.ports:
                return PortId(number)
        raise NoFreePort(hub.value, self.per_hub, self.per_hub)

    def attach(self, name: DeviceName, port: PortId, devid: int) -> Held:
        devnum, self.next_devnum = self.next_devnum, self.next_devnum + 1
        held = device_at(f"5-{port + 1}", 5, devnum, name, port, devid)
        link = Endpoints("10.0.0.2", 50000 + devnum, "10.0.0.1", 3241)
        held = replace(held, link=link)
        self.ports[port] = (name, held)
        return held

    def cut(self, port: int = 0) -> Endpoints:
        """The link of this port breaks; what the kernel says of it."""
        _, held = self.ports.pop(PortId(port))
        assert held.link is not None
        return held.link

    def rows(self) -> list[Port]:
        return [
            Port(port, 0, Hub.HIGH, PortState.USED, 3, held.devid or 0, held.busid)
            for port, (_, held) in sorted(self.ports.items())
        ]


def device_at(
    busid: str, bus: int, devnum: int, name: str, port: PortId | None, devid: int | None
) -> Held:
    return Held(
        BusId(busid),
        bus,
        devnum,
        DeviceNode(f"/dev/bus/usb/{bus:03d}/{devnum:03d}", 189, 128 * (bus - 1) + devnum - 1),
        Identity("0951", "1666", name.upper()),
        (),
        port,
        devid,
    )


class FakeAttacher:
    """contracts.Attacher on a Kernel. `gates` hold up, `failures` fail, both by device name;
    local devices in `gone` were pulled."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.local: dict[DeviceName, ClaimUid] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.release_gates: dict[str, asyncio.Event] = {}
        self.failures: dict[str, Exception] = {}
        self.release_failures: dict[str, Exception] = {}
        self.calls: list[str] = []
        self.reached: list[NodeName | None] = []
        self.orders: list[Order] = []
        self.gone: set[str] = set()
        self.turn = asyncio.Lock()

    @contextmanager
    def reaching(self, claim: ClaimRef, node: NodeName | None) -> Iterator[None]:
        self.reached.append(node)
        yield

    async def attach_remote(self, order: Order, intent: IntentHook) -> Held:
        self.calls.append(f"attach {order.name}")
        self.orders.append(order)
        if order.name in self.gates:
            await self.gates[order.name].wait()
        if order.name in self.failures:
            raise self.failures[order.name]
        assert order.hub is not None
        devid = 0x10000 + sum(order.name.encode())
        async with self.turn:  # attaches of a node come one after another
            port = self.kernel.free_port(order.hub)
            await intent(Intent(port, devid))
            return self.kernel.attach(order.name, port, devid)

    async def take_local(self, order: Order, drivers: DriversHook) -> Held:
        self.calls.append(f"take {order.name}")
        if not order.host_drivers:
            await drivers({"1-1:1.0": "usbhid"})
        if order.name in self.failures:
            raise self.failures[order.name]
        self.local[order.name] = order.claim.uid
        return device_at("1-1", 1, 4, order.name, None, None)

    async def observe(self, order: Order) -> Held | None:
        self.calls.append(f"observe {order.name}")
        for name, held in self.kernel.ports.values():
            if name == order.name:
                return held
        return None

    async def intact(self, claim: ClaimRef, device: DeviceRecord) -> bool:
        if device.route is Route.DIRECT:
            self.local[device.name] = claim.uid
            return device.held is not None and device.name not in self.gone
        assert device.held is None or device.held.port is not None
        port = device.held.port if device.held else None
        return port is not None and self.kernel.ports.get(port) == (device.name, device.held)

    async def release(self, claim: ClaimRef, device: DeviceRecord) -> None:
        self.calls.append(f"release {device.name}")
        if device.name in self.release_gates:
            await self.release_gates[device.name].wait()
        if device.name in self.release_failures:
            raise self.release_failures[device.name]
        if device.route is Route.DIRECT:
            self.local.pop(device.name, None)
            self.calls += [f"{i} back to {d}" for i, d in device.drivers_off.items()]
        proofs = [(h.port, h.devid) for h in [device.held] if h]
        proofs += [(i.port, i.devid) for i in [device.intent] if i]
        for port, devid in proofs:
            if port in self.kernel.ports and self.kernel.ports[port][1].devid == devid:
                del self.kernel.ports[port]


class FakeReporter:
    """contracts.Reporter that remembers."""

    def __init__(self) -> None:
        self.statuses: dict[str, list[Mapping[str, Any]]] = {}
        self.events: list[tuple[str, str, bool]] = []
        self.texts: list[str] = []

    async def prepared(self, record: ClaimRecord, devices: Sequence[Mapping[str, Any]]) -> None:
        self.statuses[record.ref.uid] = list(devices)

    async def released(self, ref: ClaimRef) -> None:
        self.statuses.pop(ref.uid, None)

    async def event(self, ref: ClaimRef, reason: str, message: str, warning: bool) -> None:
        self.events.append((ref.uid, reason, warning))
        self.texts.append(message)


class FakeApi:
    """contracts.Claims and contracts.DeviceView."""

    def __init__(self) -> None:
        self.claims: dict[str, dict[str, Any]] = {}
        self.facts: dict[tuple[str, str], Fact] = dict(FACTS)
        self.named: dict[Target, UsbFact] = {}
        self.error: Exception | None = None
        self.reads = 0
        self.gate: asyncio.Event | None = None

    async def get(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        self.reads += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        return self.claims.get(name)

    async def lookup(self, pool: str, device: str) -> Fact | None:
        return self.facts.get((pool, device))

    async def find(self, target: Target) -> UsbFact | None:
        return self.named.get(target)

    def owner(self, pool: str) -> NodeName | None:
        return NodeName(pool.rpartition("-")[2])


class FlakyStore(RecordStore[ClaimRecord]):
    """A real store whose disk can be full; counts what is written."""

    error: Exception | None = None
    saves = 0

    def save(self, name: str, record: ClaimRecord) -> None:
        self.saves += 1
        if self.error is not None:
            raise self.error
        super().save(name, record)


class FakeContainers:
    """running.Containers: what each container of a claim's request may use now."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.error: Exception | None = None
        self.calls: list[tuple[str, str, tuple[str, ...], tuple[str, ...]]] = []
        self.restarted: list[tuple[str, set[str]]] = []

    def restart_claim(self, claim: ClaimUid, requests: Collection[str]) -> list[Problem]:
        if self.error is not None:
            raise self.error
        self.restarted.append((claim, set(requests)))
        return self.problems

    def update_claim(self, claim: ClaimUid, wanted: Mapping[str, Wanted]) -> list[Problem]:
        if self.error is not None:
            raise self.error
        for request, one in wanted.items():
            given = tuple(str(node.path) for node in one.nodes)
            self.calls.append((claim, request, given, tuple(str(g.number) for g in one.gone)))
        return self.problems


class Agent:
    """One agent process."""

    def __init__(self, world: World, boot_id: str, limits: Limits) -> None:
        self.attacher = FakeAttacher(world.kernel)
        self.reporter = FakeReporter()
        self.store = FlakyStore(world.path / "state", ClaimSchema())
        self.files = ClaimFiles(DRIVER, world.path / "cdi", world.path / "dev", world.check_node)
        self.kill_at: Step | None = None
        self.at_step: Callable[[Step], None] | None = None
        self.steps: list[Step] = []
        self.done: list[tuple[str, str, Mapping[str, float]]] = []
        self.records = Records(self.store)
        self.board = HealthBoard()
        self.containers = FakeContainers()
        self._world = world
        self.preparer = Preparer(
            driver=DRIVER,
            node=HERE,
            boot_id=boot_id,
            records=self.records,
            claims=world.api,
            view=world.api,
            attacher=self.attacher,
            files=self.files,
            reporter=self.reporter,
            node_lock=NodeLock(world.path / "node.lock", self.records.load),
            board=self.board,
            limits=limits,
            on_step=self._step,
            on_done=lambda *done: self.done.append(done),
            containers=self.containers,
        )

    async def recover(self) -> list[Lost]:
        return await self.preparer.recover(self._world.kernel.rows)

    def _step(self, step: Step, uid: ClaimUid) -> None:
        self.steps.append(step)
        if self.at_step is not None:
            self.at_step(step)
        if step is self.kill_at:
            raise Killed(step)


class World:
    """What outlives agents."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kernel = Kernel()
        self.api = FakeApi()
        self.boot_id = BOOT
        self.node_errors: dict[str, Exception] = {}
        self.agents: list[Agent] = []

    def agent(self, **limits: Any) -> Agent:
        values: dict[str, Any] = {"prepare": 5.0, "undo": 2.0, "unprepare": 5.0, **limits}
        agent = Agent(self, self.boot_id, replace(Limits(), **values))
        self.agents.append(agent)
        return agent

    def reboot(self) -> None:
        """Attachments and what lives in memory file systems are gone; records are not."""
        self.boot_id = f"{self.boot_id}+"
        self.kernel.ports.clear()
        for path in sorted((self.path / "cdi").glob("*")):
            path.unlink()

    def check_node(self, link: NodeLink) -> None:
        if link.path in self.node_errors:
            raise self.node_errors[link.path]

    def add(self, *bodies: dict[str, Any]) -> list[ClaimRef]:
        """Put claims into the API; their references as the kubelet knows them."""
        refs = []
        for body in bodies:
            meta = body["metadata"]
            self.api.claims[meta["name"]] = body
            refs.append(ClaimRef(meta["namespace"], meta["name"], ClaimUid(meta["uid"])))
        return refs

    def specs(self) -> list[str]:
        return sorted(path.name for path in (self.path / "cdi").glob("*.json"))

    def left(self) -> list[str]:
        """Everything that exists on this node because of claims."""
        found = [f"port {port}" for port in sorted(self.kernel.ports)]
        found += [f"cdi {path.name}" for path in (self.path / "cdi").glob("*")]
        found += [f"dev {path.name}" for path in (self.path / "dev").glob("*")]
        return found + [f"record {path.name}" for path in (self.path / "state").glob("*.json")]

    async def aclose(self) -> None:
        for agent in self.agents:
            await agent.preparer.aclose()
