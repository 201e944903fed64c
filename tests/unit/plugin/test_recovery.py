# SPDX-License-Identifier: Apache-2.0
"""Agents that are killed between any two steps, nodes that reboot, records that are damaged."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from tests.waiting import until
from usbdra.errors import DetachStuck, Unreachable
from usbdra.plugin import recovery
from usbdra.plugin.acts import Step
from usbdra.plugin.health import DeviceHealth, Health
from usbdra.state.claims import Phase
from usbdra.state.recover import Lost
from usbdra.types import ClaimUid, DeviceName, PortId

from .claims import claim, local_claim, opaque, remote_claim, result
from .world import Agent, Killed, World

PREPARE_STEPS = [step for step in Step if step.value.startswith("prepare")]
UNPREPARE_STEPS = [step for step in Step if step.value.startswith("unprepare")]
UID = ClaimUid("uid-1")


@pytest.mark.parametrize("step", PREPARE_STEPS)
async def test_r43_killed_in_prepare_then_prepared_again(world: World, step: Step) -> None:
    (ref,) = world.add(remote_claim())
    first = world.agent()
    first.kill_at = step
    with pytest.raises(Killed):
        await first.preparer.prepare(ref)

    second = world.agent()
    await second.recover()
    finished = step is Step.PREPARED
    assert (world.left() != []) == finished, "an interrupted prepare is undone at start"
    record = await second.preparer.prepare(ref)
    assert record.phase is Phase.PREPARED
    assert [held for _, held in world.kernel.ports.values()] == [record.devices[0].held]
    assert len(world.specs()) == 1
    await second.preparer.unprepare(ref)
    assert world.left() == []


@pytest.mark.parametrize("step", PREPARE_STEPS)
async def test_r43_killed_in_prepare_then_the_pod_is_deleted(world: World, step: Step) -> None:
    (ref,) = world.add(claim(result("one", "usb-a", "stick"), result("two", "usb-b", "mouse")))
    first = world.agent()
    first.kill_at = step
    with pytest.raises(Killed):
        await first.preparer.prepare(ref)
    await world.agent().preparer.unprepare(ref)
    assert world.left() == []


@pytest.mark.parametrize("step", UNPREPARE_STEPS)
async def test_r43_killed_in_unprepare(world: World, step: Step) -> None:
    (ref,) = world.add(claim(result("one", "usb-a", "stick"), result("two", "usb-a", "second")))
    first = world.agent()
    await first.preparer.prepare(ref)
    first.kill_at = step
    with pytest.raises(Killed):
        await first.preparer.unprepare(ref)
    second = world.agent()
    world.api.error = Unreachable("no API")
    await second.recover()
    assert world.left() == [], "a release goes on at start, also without the API"
    await second.preparer.unprepare(ref)


@pytest.mark.parametrize("step", UNPREPARE_STEPS)
async def test_killed_in_unprepare_then_prepared_again_before_recovery(
    world: World, step: Step
) -> None:
    (ref,) = world.add(remote_claim())
    first = world.agent()
    await first.preparer.prepare(ref)
    first.kill_at = step
    with pytest.raises(Killed):
        await first.preparer.unprepare(ref)
    second = world.agent()
    record = await second.preparer.prepare(ref)
    assert [held for _, held in world.kernel.ports.values()] == [record.devices[0].held]
    assert await second.preparer.prepare(ref) == record


async def test_r43_a_restart_touches_no_healthy_link(world: World) -> None:
    refs = world.add(remote_claim(), local_claim())
    first = world.agent()
    records = [await first.preparer.prepare(ref) for ref in refs]
    ports = dict(world.kernel.ports)
    second = world.agent()
    assert await second.recover() == []
    assert [await second.preparer.prepare(ref) for ref in refs] == records
    assert second.attacher.calls == []
    assert second.attacher.local == {"mouse": "uid-2"}, "the local device is held again"
    assert world.kernel.ports == ports


async def test_a_kill_before_the_kernel_write_leaves_a_foreign_port_alone(world: World) -> None:
    """Between intent and write somebody else's device comes to the very port."""
    (ref,) = world.add(remote_claim())
    first = world.agent()
    first.kill_at = Step.INTENDED
    with pytest.raises(Killed):
        await first.preparer.prepare(ref)
    foreign = world.kernel.attach(DeviceName("foreign"), PortId(0), 0x70007)
    second = world.agent()
    await second.recover()
    assert [held for _, held in world.kernel.ports.values()] == [foreign]
    await second.preparer.prepare(ref)
    assert sorted(world.kernel.ports) == [0, 1]


@pytest.mark.parametrize("step", [Step.INTENDED, Step.TAKEN, Step.HELD, Step.FILES_WRITTEN])
async def test_killed_while_a_link_is_restored(world: World, step: Step) -> None:
    """The attach that no record tells the end of is given back before another one is made."""
    (ref,) = world.add(remote_claim())
    first = world.agent()
    await first.preparer.prepare(ref)
    first.preparer.losses.link_ended(world.kernel.cut())
    first.kill_at = step
    with pytest.raises(Killed):
        await first.preparer.restore(ref)
    second = world.agent()
    assert [lost.uid for lost in await second.recover()] == [ref.uid]
    record = await second.preparer.restore(ref)
    assert record is not None
    assert [held for _, held in world.kernel.ports.values()] == [record.devices[0].held]


async def test_r44_reboot(world: World) -> None:
    (ref,) = world.add(remote_claim())
    before = await world.agent().preparer.prepare(ref)
    world.reboot()
    agent = world.agent()
    assert await agent.recover() == []
    assert agent.attacher.calls == []
    record = await agent.preparer.prepare(ref)
    assert record.boot_id == world.boot_id
    assert record.devices[0].held not in (None, before.devices[0].held)
    assert [held for _, held in world.kernel.ports.values()] == [record.devices[0].held]
    assert len(world.specs()) == 1
    await agent.preparer.unprepare(ref)
    assert world.left() == []


async def test_r44_reboot_then_the_pod_is_gone(world: World) -> None:
    (ref,) = world.add(remote_claim())
    await world.agent().preparer.prepare(ref)
    world.reboot()
    world.api.claims.clear()
    agent = world.agent()
    await agent.recover()
    assert world.left() == []


async def test_r48_a_claim_deleted_while_we_were_away_is_given_back(world: World) -> None:
    (ref,) = world.add(remote_claim())
    await world.agent().preparer.prepare(ref)
    world.api.claims.clear()
    agent = world.agent()
    await agent.recover()
    assert world.left() == []
    assert agent.attacher.calls == ["release stick"]


@pytest.mark.parametrize("unallocated", [True, False])
async def test_r48_replaced_or_unallocated_claims_are_given_back(
    world: World, unallocated: bool
) -> None:
    (ref,) = world.add(remote_claim())
    await world.agent().preparer.prepare(ref)
    if unallocated:
        world.api.claims["stick"]["status"] = {}
    else:
        world.add(remote_claim(uid="another"))
    await world.agent().recover()
    assert world.left() == []


async def test_an_api_that_does_not_answer_gives_nothing_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ref,) = world.add(remote_claim())
    await world.agent().preparer.prepare(ref)
    before = world.left()
    world.api.error = Unreachable("no API")
    await world.agent().recover()
    assert world.left() == before
    world.api.error = None
    world.api.gate = asyncio.Event()
    monkeypatch.setattr(recovery, "API_SECONDS", 0.01)
    await world.agent().recover()
    assert world.left() == before


async def test_r42_a_claim_prepared_by_the_old_agent_meanwhile_is_left_alone(
    world: World,
) -> None:
    """Facts are taken under the node's lock: never older than what the other agent did."""
    (ref,) = world.add(remote_claim())
    old, new = world.agent(), world.agent()
    gate = old.attacher.gates["stick"] = asyncio.Event()
    preparing = asyncio.create_task(old.preparer.prepare(ref))
    await asyncio.sleep(0.01)
    recovering = asyncio.create_task(new.recover())
    await asyncio.sleep(0.01)
    gate.set()
    record = await preparing
    assert await recovering == []
    assert await new.preparer.prepare(ref) == record
    assert new.attacher.calls == []


async def test_health_follows_the_claims(world: World) -> None:
    (ref,) = world.add(remote_claim())
    agent = world.agent()
    await agent.preparer.prepare(ref)
    healthy = DeviceHealth("usb-a", "stick", Health.HEALTHY)
    assert await _health(agent) == (healthy,)
    link = world.kernel.cut()
    assert agent.preparer.losses.link_ended(replace(link, local_port=1)) is None
    assert agent.preparer.losses.link_ended(link) == ref
    ((state),) = await _health(agent)
    assert (state.health, state.message) == (
        Health.UNHEALTHY,
        "LinkLost: stick of node a is gone",
    )
    await agent.preparer.restore(ref)
    assert await _health(agent) == (healthy,)
    again = world.agent()
    await again.recover()
    assert await _health(again) == (healthy,)
    await again.preparer.unprepare(ref)
    assert await _health(again) == ()
    assert ("uid-1", "LinkLost", True) in agent.reporter.events


async def test_health_of_a_shared_port_is_nobodys(world: World) -> None:
    body = claim(
        result("usb/remote", "usblink-b", "vhci-high", shareID="s"),
        config=[opaque(device={"name": "stick", "node": "a"})],
    )
    (ref,) = world.add(body)
    agent = world.agent()
    await agent.preparer.prepare(ref)
    assert await _health(agent) == ()


async def _health(agent: Agent) -> tuple[DeviceHealth, ...]:
    async with aclosing(agent.board.watch()) as states:
        return await anext(states)


async def test_lost_links_are_named_for_the_supervisor(world: World) -> None:
    (ref,) = world.add(remote_claim())
    await world.agent().preparer.prepare(ref)
    world.kernel.ports.clear()
    agent = world.agent()
    assert await agent.recover() == [Lost(UID, (("usb", 0),))]
    record = await agent.preparer.restore(ref)
    assert record is not None
    assert [held for _, held in world.kernel.ports.values()] == [record.devices[0].held]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kind": "claim", "version": 9}'])
async def test_r51_damaged_record_is_kept_aside_and_rebuilt(world: World, text: str) -> None:
    (ref,) = world.add(remote_claim())
    before = await world.agent().preparer.prepare(ref)
    path = world.path / "state" / "uid-1.json"
    path.write_text(text)
    agent = world.agent()
    assert await agent.recover() == []
    assert agent.records.get(UID) == before
    assert (world.path / "state" / "uid-1.json.bad-1").read_text() == text
    await asyncio.sleep(0)
    assert ("uid-1", "StateError", True) in agent.reporter.events
    assert await agent.preparer.prepare(ref) == before
    await agent.preparer.unprepare(ref)
    assert world.left() == []


async def test_r51_record_damaged_while_the_agent_runs(world: World) -> None:
    (ref,) = world.add(remote_claim())
    agent = world.agent()
    before = await agent.preparer.prepare(ref)
    (world.path / "state" / "uid-1.json").write_text("{")
    assert await agent.preparer.prepare(ref) == before
    await agent.preparer.unprepare(ref)
    assert world.left() == []


async def test_r61_leftovers_of_dead_claims_are_swept(world: World) -> None:
    cdi = world.path / "cdi"
    cdi.mkdir()
    (cdi / "usb.virtualization.deckhouse.io_claim_dead.json").write_text("{}")
    (cdi / "nvidia.json").write_text("{}")
    (world.path / "dev" / "older" / "links").mkdir(parents=True)
    await world.agent().recover()
    assert [path.name for path in cdi.iterdir()] == ["nvidia.json"]
    assert list((world.path / "dev").iterdir()) == []


async def test_a_claim_that_cannot_be_recovered_holds_up_no_other(world: World) -> None:
    refs = world.add(remote_claim(), remote_claim("second", "uid-3", "second"))
    first = world.agent()
    for ref in refs:
        await first.preparer.prepare(ref)
    agent = world.agent(retries=(0.01,))
    agent.attacher.release_failures["stick"] = DetachStuck("port 0 stays used")
    world.api.claims.clear()
    await agent.recover()
    assert [name for name, _ in world.kernel.ports.values()] == ["stick"]
    del agent.attacher.release_failures["stick"]
    await until(lambda: not world.left())


async def test_a_call_that_comes_before_recovery_is_not_undone_by_it(world: World) -> None:
    """R55, R56: nothing waits; a claim prepared meanwhile is no business of the start."""
    (ref,) = world.add(remote_claim())
    first = world.agent()
    first.kill_at = Step.HELD
    with pytest.raises(Killed):
        await first.preparer.prepare(ref)
    second = world.agent()
    record, _ = await asyncio.gather(second.preparer.prepare(ref), second.recover())
    assert await second.preparer.prepare(ref) == record
    assert [held for _, held in world.kernel.ports.values()] == [record.devices[0].held]


def without_drivers() -> dict[str, Any]:
    body = local_claim()
    body["status"]["allocation"]["devices"]["config"] = [opaque(driver="none")]
    return body


async def test_r67_drivers_kept_off_a_local_device_are_on_record_and_come_back(
    world: World,
) -> None:
    (ref,) = world.add(without_drivers())
    agent = world.agent()
    record = await agent.preparer.prepare(ref)
    assert record.devices[0].drivers_off == {"1-1:1.0": "usbhid"}
    again = world.agent()
    await again.recover()
    await again.preparer.unprepare(ref)
    assert again.attacher.calls == ["release mouse", "1-1:1.0 back to usbhid"]
    assert world.left() == []


@pytest.mark.parametrize("step", [Step.INTENDED, Step.TAKEN])
async def test_drivers_come_back_when_the_agent_was_killed_taking_them(
    world: World, step: Step
) -> None:
    (ref,) = world.add(without_drivers())
    first = world.agent()
    first.kill_at = step
    with pytest.raises(Killed):
        await first.preparer.prepare(ref)
    second = world.agent()
    await second.recover()
    assert second.attacher.calls == ["release mouse", "1-1:1.0 back to usbhid"]
    assert world.left() == []
