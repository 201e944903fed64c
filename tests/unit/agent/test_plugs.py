# SPDX-License-Identifier: Apache-2.0
"""Devices of claims in machines of the node: put in, kept, taken out, whatever happens between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.kube import FakeKube
from tests.fakes.qemu import FakeQemu
from tests.waiting import until
from usbdra.agent import plugs as module
from usbdra.agent.plugreports import PlugReports
from usbdra.agent.plugs import Plugs
from usbdra.agent.podplugs import PodPlugs
from usbdra.hotplug import machines
from usbdra.hotplug import qemu as qemu_module
from usbdra.hotplug.qemu import PREFIX
from usbdra.kube import errors
from usbdra.kube.custom import Contract
from usbdra.slices.limits import digest
from usbdra.state.claims import (
    ClaimRecord,
    ClaimRef,
    DeviceNode,
    DeviceRecord,
    Held,
    Identity,
    Phase,
    Route,
)
from usbdra.state.plugs import PlugSchema
from usbdra.state.store import RecordStore
from usbdra.types import BusId, ClaimUid, DeviceName, NodeName

NAMES = Contract("example.com")
NODE = NodeName("a")
ONE = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
TWO = "1f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
CLAIM = ClaimUid("claim-1")
NULL, ZERO = DeviceNode("/dev/null", 1, 3), DeviceNode("/dev/zero", 1, 5)
"""Nodes that every machine has, in place of /dev/bus/usb/..."""


def held(node: DeviceNode, number: int = 2) -> Held:
    return Held(BusId("5-1"), 5, number, node, Identity("0951", "1666", "A"))


def record(uid: ClaimUid, what: Held | None, phase: Phase = Phase.PREPARED) -> ClaimRecord:
    name = DeviceName("stick")
    device = DeviceRecord("usb", "usb-b", name, name, NodeName("b"), Route.VHCI, held=what)
    return ClaimRecord(ClaimRef("lab", f"name-{uid}", uid), phase, "boot", (device,))


class World:
    """An agent's plugs with the API, claims and machines around them."""

    def __init__(self, root: Path) -> None:
        self.api = FakeKube()
        self.claims: dict[ClaimUid, ClaimRecord] = {}
        self.kubelet = root / "kubelet"
        self.store = RecordStore(root / "plugs", PlugSchema())
        self.intact = True
        self.machines: dict[str, FakeQemu] = {}
        self.pods: PodPlugs | None = None
        self.plugs: Plugs

    async def machine(self, pod: str = ONE) -> FakeQemu:
        volume = self.kubelet / "pods" / pod / "volumes/kubernetes.io~empty-dir/run"
        volume.mkdir(parents=True)
        made = self.machines[pod] = FakeQemu(volume / "q")
        await made.start()
        return made

    def attach(
        self, name: str = "one", claim: ClaimUid = CLAIM, pod: str = ONE, container: str = ""
    ) -> None:
        target = {"adapter": "qmp", "pod": "vm", "uid": pod, "socket": "run/q", "bus": ""}
        if container:
            target = {"adapter": "pod", "pod": "app", "uid": pod, "containerID": container}
        status = {"nodeName": NODE, "claimUID": claim, "target": target}
        meta = {"name": name, "namespace": "lab", "uid": f"uid-{name}"}
        self.api.put(NAMES.attachment, {"metadata": meta, "status": status})

    def prepare(self, what: Held | None, uid: ClaimUid = CLAIM, **more: Any) -> None:
        self.claims[uid] = record(uid, what, **more)
        self.plugs.claims_changed()

    def said(self, name: str = "one") -> dict[str, Any]:
        """status.plug of an attachment, {} before anything was said."""
        (found,) = [a for a in self.api.all(NAMES.attachment) if a["metadata"]["name"] == name]
        plug: dict[str, Any] = found["status"].get("plug", {})
        return plug

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[None]:
        """One life of the agent."""

        async def intact(ref: ClaimRef, device: DeviceRecord) -> bool:
            return self.intact

        self.plugs = Plugs(
            self.api, NAMES, NODE, kubelet_dir=self.kubelet, store=self.store,
            claims=self.claims.get, intact=intact, pauses=(0.005, 0.02),
            reports=PlugReports(self.api, NAMES.attachment, backoff=(0.005, 0.02)),
            pods=self.pods,
        )  # fmt: skip
        await self.plugs.load()
        task = asyncio.create_task(self.plugs.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def aclose(self) -> None:
        for machine in self.machines.values():
            await machine.kill()


def device(name: str = "one") -> str:
    return f"{PREFIX}{digest(f'uid-{name}')}"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    await made.aclose()


async def plugged(world: World, qemu: FakeQemu, node: DeviceNode = NULL) -> None:
    await until(lambda: qemu.devices == {device(): node.path})
    await until(lambda: bool(world.said().get("attached")))


async def plug_in(world: World, qemu: FakeQemu) -> None:
    """Ask for a device and wait until it is in the machine."""
    world.attach()
    world.prepare(held(NULL))
    await plugged(world, qemu)


async def test_a_device_goes_in_when_attachment_and_claim_are_there(world: World) -> None:
    qemu = await world.machine()
    async with world.agent():
        await plug_in(world, qemu)
        assert world.said() == {
            "attached": True, "address": {"bus": 0, "port": 1}, "podUID": ONE, "claimUID": CLAIM,
        }  # fmt: skip
        world.claims[CLAIM] = record(CLAIM, held(NULL), Phase.RELEASING)
        await world.plugs.release(CLAIM)
        assert (qemu.devices, qemu.sets) == ({}, {})
        await until(lambda: world.said()["attached"] is False)
        assert world.said()["reason"] == "Detached"
    assert world.store.load(CLAIM) is None


async def test_r64_a_device_that_comes_back_is_plugged_in_again_each_time(world: World) -> None:
    qemu = await world.machine()
    async with world.agent():
        world.attach()
        for number in range(3):
            world.prepare(held((NULL, ZERO)[number % 2], number))
            await plugged(world, qemu, (NULL, ZERO)[number % 2])
            await world.plugs.release(CLAIM)  # as when a link is lost
            world.prepare(None)
            await until(lambda: qemu.devices == {} and not world.said()["attached"])
    assert qemu.sets == {}


async def test_r64_new_numbers_alone_are_a_new_device(world: World) -> None:
    qemu = await world.machine()
    async with world.agent():
        world.attach()
        world.prepare(held(NULL, 2))
        await plugged(world, qemu)
        world.prepare(held(ZERO, 3))
        await until(lambda: qemu.devices == {device(): ZERO.path})
        assert len(qemu.sets) == 1


async def test_a_restarted_agent_finds_what_is_plugged_in_and_touches_nothing(
    world: World,
) -> None:
    qemu = await world.machine()
    async with world.agent():
        await plug_in(world, qemu)
    done = len([c for c in qemu.commands if c.startswith("device_")])
    world.api.fail(errors.ApiUnavailable("list", 503, "", "away"))
    async with world.agent():
        await asyncio.sleep(0.02)
        assert qemu.devices == {device(): NULL.path}  # the API has not said anything yet
        world.api.fail(None)
        before = len(qemu.commands)
        await until(lambda: "qom-get" in qemu.commands[before:])
    assert len([c for c in qemu.commands if c.startswith("device_")]) == done


async def test_during_an_upgrade_the_new_agent_waits_for_the_old_ones_connection(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machines, "GREETING", 0.02)
    qemu = await world.machine()
    async with world.agent():
        await plug_in(world, qemu)
        said = len(world.api.requests)
        old = world.plugs
        async with world.agent():
            await until(lambda: len(qemu._socks) > 1)
            await asyncio.sleep(0.1)
            assert len(world.api.requests) == said  # the status stays as true as it is
            await old._machines.aclose()
            await until(lambda: len(world.api.requests) > said)
            assert world.said()["attached"] is True


async def test_of_a_machine_that_does_not_answer_a_new_agent_says_nothing_new(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machines, "GREETING", 0.02)
    qemu = await world.machine()
    async with world.agent():
        await plug_in(world, qemu)
    said, before = len(world.api.requests), len(qemu.commands)
    qemu.silent = {"qmp_capabilities"}
    async with world.agent():
        await until(lambda: len(qemu.commands) > before + 2)
        assert len(world.api.requests) == said
        assert world.said()["attached"] is True
        qemu.silent = set()
        await until(lambda: len(world.api.requests) > said)
        assert world.said()["attached"] is True


async def test_a_machine_that_is_known_to_lack_the_device_and_does_not_take_it_is_told_of(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machines, "GREETING", 0.05)
    qemu = await world.machine()
    async with world.agent():
        await plug_in(world, qemu)
    await qemu.restart()
    qemu.silent = {"device_add"}
    async with world.agent():
        await until(lambda: world.said()["attached"] is False)
        assert world.said()["reason"] == "PlugFailed"


async def test_what_a_restarted_agent_should_not_have_goes_out(world: World) -> None:
    qemu = await world.machine()
    async with world.agent():
        await plug_in(world, qemu)
    world.api.drop(NAMES.attachment, "one", "lab")
    async with world.agent():
        await until(lambda: qemu.devices == {} and world.store.load(CLAIM) is None)


async def test_a_qemu_that_starts_again_in_its_pod_gets_the_device_again(world: World) -> None:
    qemu = await world.machine()
    async with world.agent():
        await plug_in(world, qemu)
        await qemu.restart()
        await plugged(world, qemu)


async def test_a_machine_that_is_gone_has_given_its_device_back(world: World) -> None:
    qemu = await world.machine()
    async with world.agent():
        await plug_in(world, qemu)
        await qemu.kill()
        world.claims[CLAIM] = record(CLAIM, held(NULL), Phase.RELEASING)
        async with asyncio.timeout(5):  # less than RELEASE_TIME
            await world.plugs.release(CLAIM)
        assert world.store.load(CLAIM) is None


async def test_r65_another_pod_of_the_machine_gets_it_after_the_first_gave_it_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qemu_module, "DELETE_TIME", 0.02)
    old, new = await world.machine(ONE), await world.machine(TWO)
    async with world.agent():
        await plug_in(world, old)
        old.keeps = True
        world.attach(pod=TWO)
        await until(lambda: "device_del" in old.commands)
        assert new.devices == {}
        old.keeps = False
        del old.usb[device()]
        await until(lambda: new.devices == {device(): NULL.path})
        await until(lambda: world.said().get("podUID") == TWO)


async def test_a_machine_that_hangs_costs_the_device_and_is_cleaned_up_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RELEASE_TIME", 0.05)
    qemu = await world.machine()
    async with world.agent():
        await plug_in(world, qemu)
        qemu.silent = {"qom-list"}
        world.claims[CLAIM] = record(CLAIM, held(NULL), Phase.RELEASING)
        async with asyncio.timeout(3):  # less than QMP's own limit
            await world.plugs.release(CLAIM)
        assert world.store.load(CLAIM) is not None
        del world.claims[CLAIM]
        await qemu.restart()
        qemu.silent = set()
        await until(lambda: world.store.load(CLAIM) is None)


async def test_a_device_that_is_not_what_the_claim_holds_is_not_plugged_in(world: World) -> None:
    qemu = await world.machine()
    async with world.agent():
        world.attach()
        world.intact = False
        world.prepare(held(NULL))
        await until(lambda: world.said().get("reason") == "LinkLost")
        assert qemu.devices == {}
        world.intact = True
        world.prepare(held(replace(NULL, minor=4)))
        await until(lambda: "went away" in world.said()["message"])
        assert qemu.devices == {}
        world.prepare(held(NULL))
        await plugged(world, qemu)


async def test_why_a_machine_does_not_take_a_device_is_said_and_tried_again(world: World) -> None:
    qemu = await world.machine()
    qemu.ports = 0
    async with world.agent():
        world.attach()
        world.prepare(held(NULL))
        await until(lambda: world.said().get("reason") == "PlugFailed")
        assert world.said()["message"] == "bus xhci.0 of the machine has no free USB port"
        qemu.ports = 4
        await plugged(world, qemu)


async def test_a_machine_that_has_no_socket_yet_gets_the_device_when_it_has(world: World) -> None:
    async with world.agent():
        world.attach()
        world.prepare(held(NULL))
        await until(lambda: world.said().get("reason") == "NotRunning")
        qemu = await world.machine()
        await plugged(world, qemu)


async def test_two_devices_share_a_machine_and_one_failure_hides_no_other(world: World) -> None:
    other = ClaimUid("claim-2")
    qemu = await world.machine()
    qemu.ports = 1
    async with world.agent():
        world.attach("one")
        world.prepare(held(NULL))
        await plugged(world, qemu)
        world.attach("two", other)
        world.prepare(held(ZERO), other)
        await until(lambda: world.said("two").get("reason") == "PlugFailed")
        assert world.said("one")["attached"] is True
        await world.plugs.release(CLAIM)
        del world.claims[CLAIM]
        world.plugs.claims_changed()
        await until(lambda: bool(world.said("two").get("attached")))
        assert world.said("two")["address"] == {"bus": 0, "port": 1}
