# SPDX-License-Identifier: Apache-2.0
"""A prepared claim loses a device: who is told, and how it comes back."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from usbdra.errors import LinkError, NoFreePort, Unreachable
from usbdra.plugin import telling
from usbdra.plugin.acts import Step
from usbdra.state.claims import ClaimRef, DeviceRecord
from usbdra.types import ClaimUid

from .claims import claim, local_claim, remote_claim, result
from .world import Agent, World


async def prepared(world: World, *bodies: dict[str, Any]) -> tuple[Agent, list[ClaimRef]]:
    refs, agent = world.add(*bodies), world.agent()
    for ref in refs:
        await agent.preparer.prepare(ref)
    return agent, refs


async def ready(agent: Agent, uid: str) -> tuple[str, str, dict[str, Any]]:
    """Ready condition of the claim's first device: status and reason, and the data beside it."""
    await asyncio.sleep(0)
    device = agent.reporter.statuses[uid][0]
    (condition,) = device["conditions"]
    return condition["status"], condition["reason"], device["data"]


async def test_a_lost_link_is_told_in_status_health_and_one_event(world: World) -> None:
    agent, [ref] = await prepared(world, remote_claim())
    link = world.kernel.cut()
    assert agent.preparer.losses.link_ended(link) == ref
    assert agent.preparer.losses.link_ended(link) == ref
    assert await agent.preparer.losses.check() == [ref]
    where = {"name": "stick", "node": "a", "lost": True}
    assert await ready(agent, "uid-1") == ("False", "LinkLost", where)
    lost = [event for event in agent.reporter.events if event[1] == "LinkLost"]
    assert lost == [("uid-1", "LinkLost", True)]


async def test_r24_restored_claims_are_ready_again_under_the_new_numbers(world: World) -> None:
    agent, [ref] = await prepared(world, remote_claim())
    agent.preparer.losses.link_ended(world.kernel.cut())
    record = await agent.preparer.restore(ref)
    assert record is not None
    (device,) = record.devices
    assert device.held is not None
    status, reason, data = await ready(agent, "uid-1")
    assert (status, reason) == ("True", "Attached")
    assert data["deviceNumber"] == device.held.devnum == 3
    assert await agent.preparer.losses.check() == []


async def test_a_loss_that_was_none_is_taken_back(world: World) -> None:
    agent, [ref] = await prepared(world, remote_claim())
    ((_, held),) = world.kernel.ports.values()
    assert held.link is not None
    agent.preparer.losses.link_ended(held.link)
    assert await agent.preparer.restore(ref) is not None
    assert (await ready(agent, "uid-1"))[:2] == ("True", "Attached")


async def test_a_failed_attempt_says_why_and_keeps_the_claim(world: World) -> None:
    agent, [ref] = await prepared(world, remote_claim())
    agent.preparer.losses.link_ended(world.kernel.cut())
    agent.attacher.failures["stick"] = Unreachable("node a does not answer")
    with pytest.raises(Unreachable):
        await agent.preparer.restore(ref)
    await asyncio.sleep(0)
    assert agent.reporter.texts[-1] == "node a does not answer"
    assert (await ready(agent, "uid-1"))[:2] == ("False", "LinkLost")
    assert await agent.preparer.losses.check() == [ref]


async def test_r60_what_is_lost_is_no_more_in_the_files_of_the_claim(world: World) -> None:
    agent, [ref] = await prepared(world, remote_claim())
    (spec,) = (world.path / "cdi").glob("*.json")
    links = world.path / "dev" / ref.uid / "links" / "usb"
    assert "/dev/bus/usb/005/002" in spec.read_text()
    assert (links / "device").is_symlink()
    agent.preparer.losses.link_ended(world.kernel.cut())
    agent.attacher.failures["stick"] = Unreachable("node a does not answer")
    with pytest.raises(Unreachable):
        await agent.preparer.restore(ref)
    (edits,) = (d["containerEdits"] for d in json.loads(spec.read_text())["devices"])
    assert "deviceNodes" not in edits
    assert list(links.iterdir()) == []
    agent.attacher.failures.clear()
    await agent.preparer.restore(ref)
    assert "/dev/bus/usb/005/003" in spec.read_text()
    assert str((links / "device").readlink()) == "/dev/bus/usb/005/003"


async def test_a_local_device_that_was_pulled_is_not_found(world: World) -> None:
    agent, [ref] = await prepared(world, local_claim())
    agent.attacher.gone.add("mouse")
    assert await agent.preparer.losses.check() == [ref]
    assert (await ready(agent, "uid-2"))[:2] == ("False", "NotFound")
    assert not agent.preparer.losses.lacks_local(ref.uid)
    agent.attacher.failures["mouse"] = LinkError("not there")
    with pytest.raises(LinkError):
        await agent.preparer.restore(ref)
    assert agent.preparer.losses.lacks_local(ref.uid)
    agent.attacher.gone.clear()
    agent.attacher.failures.clear()
    await agent.preparer.restore(ref)
    assert not agent.preparer.losses.lacks_local(ref.uid)
    assert (await ready(agent, "uid-2"))[:2] == ("True", "Local")


@pytest.mark.parametrize("gone", ["deleted", "deallocated", "another of its name"])
async def test_r48_what_the_api_gave_up_is_given_back_not_attached(world: World, gone: str) -> None:
    agent, [ref] = await prepared(world, remote_claim())
    agent.preparer.losses.link_ended(world.kernel.cut())
    match gone:
        case "deleted":
            world.api.claims.clear()
        case "deallocated":
            del world.api.claims["stick"]["status"]["allocation"]
        case _:
            world.api.claims["stick"]["metadata"]["uid"] = "uid-9"
    attaches = agent.attacher.calls.count("attach stick")
    assert await agent.preparer.restore(ref) is None
    assert agent.attacher.calls.count("attach stick") == attaches
    assert world.left() == []
    await asyncio.sleep(0)
    assert "uid-1" not in agent.reporter.statuses


async def test_an_api_without_an_answer_leaves_it_to_the_exporter(world: World) -> None:
    agent, [ref] = await prepared(world, remote_claim())
    agent.preparer.losses.link_ended(world.kernel.cut())
    world.api.error = Unreachable("no API server")
    assert await agent.preparer.restore(ref) is not None


async def test_a_link_that_ends_before_its_record_is_noticed(world: World) -> None:
    (ref,) = world.add(remote_claim())
    agent = world.agent()

    def cut(step: Step) -> None:
        if step is Step.TAKEN:
            world.kernel.cut()

    agent.at_step = cut
    with pytest.raises(LinkError, match="stick went away as soon as it was there"):
        await agent.preparer.prepare(ref)
    assert world.left() == []


async def test_a_claim_that_changes_during_the_look_is_left_alone(world: World) -> None:
    agent, [ref] = await prepared(world, remote_claim())
    known = agent.attacher.intact

    async def meanwhile(claim: ClaimRef, device: DeviceRecord) -> bool:
        record = agent.records.get(ClaimUid("uid-1"))
        assert record is not None
        await agent.records.put(replace(record, error="another call was here"))
        return False

    agent.attacher.intact = meanwhile  # type: ignore[method-assign]
    assert await agent.preparer.losses.check() == []
    agent.attacher.intact = known  # type: ignore[method-assign]
    assert await agent.preparer.losses.check() == []
    assert agent.preparer.losses.link_ended(world.kernel.cut()) == ref


def usb_alone(uid: str, device: str) -> dict[str, Any]:
    """A claim that leaves the choice of a port to the agent."""
    return claim(result("usb", "usb-a", device), name=uid, uid=uid)


async def test_r03_no_free_port_is_told_and_the_next_try_succeeds_once_one_is_free(
    world: World,
) -> None:
    world.kernel.per_hub = 1
    holder, waiter = world.add(usb_alone("uid-7", "stick"), usb_alone("uid-8", "second"))
    agent = world.agent()
    await agent.preparer.prepare(holder)
    for _ in range(2):  # the kubelet tries again and again
        with pytest.raises(NoFreePort, match="no high-speed port free"):
            await agent.preparer.prepare(waiter)
        status, reason, data = await ready(agent, "uid-8")
        assert (status, reason) == ("False", "NoFreeUSBIPPort")
        assert data == {"name": "second", "node": "a"}
        assert agent.reporter.events[-1] == ("uid-8", "NoFreeUSBIPPort", True)
        assert list(agent.records.all()) == ["uid-7"], "a failed claim holds nothing"
    await agent.preparer.unprepare(holder)
    await agent.preparer.prepare(waiter)
    assert (await ready(agent, "uid-8"))[:2] == ("True", "Attached")


async def test_a_pod_that_gave_up_leaves_no_status(world: World) -> None:
    (ref,) = world.add(remote_claim())
    agent = world.agent()
    agent.attacher.failures["stick"] = Unreachable("node a does not answer")
    with pytest.raises(Unreachable):
        await agent.preparer.prepare(ref)
    assert (await ready(agent, "uid-1"))[:2] == ("False", "Unreachable")
    await agent.preparer.unprepare(ref)
    await agent.preparer.unprepare(ref)
    await asyncio.sleep(0)
    assert agent.reporter.statuses == {}


async def test_r42_what_another_agent_attached_again_is_not_lost(world: World) -> None:
    """Two agents during an upgrade: the old one's memory is behind the disk."""
    old, [ref] = await prepared(world, remote_claim())
    new = world.agent()
    await new.recover()
    world.kernel.cut()
    await new.preparer.restore(ref)
    assert await old.preparer.losses.check() == []
    assert (await ready(old, "uid-1"))[:2] == ("True", "Attached")
    assert old.records.all() == new.records.all()


async def test_one_devices_failure_keeps_no_other_one_from_a_claim_in_use(world: World) -> None:
    body = claim(result("first", "usb-a", "stick"), result("second", "usb-a", "second"))
    agent, [ref] = await prepared(world, body)
    for port in (0, 1):
        agent.preparer.losses.link_ended(world.kernel.cut(port))
    agent.attacher.failures["stick"] = Unreachable("stick is away")
    with pytest.raises(Unreachable, match="stick is away"):
        await agent.preparer.restore(ref)
    await asyncio.sleep(0)
    assert [
        (d["device"], d["conditions"][0]["status"]) for d in agent.reporter.statuses["uid-1"]
    ] == [("stick", "False"), ("second", "True")]
    (spec,) = (world.path / "cdi").glob("*.json")
    nodes = [
        d["containerEdits"].get("deviceNodes") for d in json.loads(spec.read_text())["devices"]
    ]
    assert [bool(n) for n in nodes] == [False, True]
    agent.attacher.failures.clear()
    attaches = agent.attacher.calls.count("attach second")
    await agent.preparer.restore(ref)
    assert agent.attacher.calls.count("attach second") == attaches
    await asyncio.sleep(0)
    assert {d["conditions"][0]["status"] for d in agent.reporter.statuses["uid-1"]} == {"True"}


async def test_a_condition_keeps_its_time_until_it_changes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC) for second in range(9))

    class Clock:
        now = staticmethod(lambda zone: next(times))

    monkeypatch.setattr(telling, "datetime", Clock)
    body = claim(result("first", "usb-a", "stick"), result("second", "usb-a", "second"))
    agent, [ref] = await prepared(world, body)

    async def since() -> list[str]:
        await asyncio.sleep(0)
        devices = agent.reporter.statuses["uid-1"]
        return [d["conditions"][0]["lastTransitionTime"][-3:-1] for d in devices]

    assert await since() == ["00", "00"]
    agent.preparer.losses.link_ended(world.kernel.cut(1))
    assert await since() == ["00", "01"]
    await agent.preparer.restore(ref)
    assert await since() == ["00", "02"]
    await agent.preparer.unprepare(ref)
    await agent.preparer.prepare(ref)
    assert await since() == ["03", "03"]
