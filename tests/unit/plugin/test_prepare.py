# SPDX-License-Identifier: Apache-2.0
"""Prepare and unprepare: results, failures, turns, time limits."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.waiting import until
from usbdra.errors import (
    AttachFailed,
    ClaimBusy,
    DetachStuck,
    DeviceBusy,
    NoFreePort,
    NotFound,
    OutOfTime,
    Refused,
    StateError,
    Unreachable,
    UsbdraError,
)
from usbdra.plugin.acts import Step
from usbdra.plugin.contracts import UsbFact
from usbdra.state.claims import ClaimRecord, ClaimRef, Identity, Phase
from usbdra.types import ClaimUid, DeviceName, Hub, NodeName, PortId, Speed

from .claims import claim, local_claim, opaque, remote_claim, result, usb_fact
from .world import World


async def settled() -> None:
    """Let background reports go out."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_remote_claim_from_start_to_end(world: World) -> None:
    (ref,) = world.add(remote_claim())
    agent = world.agent()
    record = await agent.preparer.prepare(ref)
    assert record.phase is Phase.PREPARED
    assert list(world.kernel.ports) == [0]
    (order,) = agent.attacher.orders
    assert (order.name, order.node, order.hub, order.claim) == ("stick", "a", Hub.HIGH, record.ref)
    assert order.identity == Identity("0951", "1666", "STICK")
    assert agent.steps == [
        Step.RECORDED,
        Step.INTENDED,
        Step.TAKEN,
        Step.HELD,
        Step.FILES_WRITTEN,
        Step.PREPARED,
    ]
    await settled()
    (status,) = agent.reporter.statuses["uid-1"]
    assert status["data"]["path"] == "/dev/bus/usb/005/002"
    assert status["data"]["port"] == 0
    assert status["conditions"][0]["reason"] == "Attached"
    assert agent.reporter.events == [("uid-1", "Attached", False)]

    await agent.preparer.unprepare(ref)
    assert world.left() == []
    await settled()
    assert agent.reporter.statuses == {}
    assert agent.reporter.events[1:] == [("uid-1", "Detached", False)]


async def test_local_claim_attaches_nothing(world: World) -> None:
    (ref,) = world.add(local_claim())
    agent = world.agent()
    record = await agent.preparer.prepare(ref)
    assert world.kernel.ports == {}
    assert agent.attacher.local == {"mouse": "uid-2"}
    assert record.devices[0].held is not None
    assert record.devices[0].held.busid == "1-1"
    await agent.preparer.unprepare(ref)
    assert agent.attacher.local == {}
    assert world.left() == []


async def test_admin_access_takes_nothing_and_gives_nothing_back(world: World) -> None:
    world.add(remote_claim())
    (looking,) = world.add(
        claim(result("usb", "usb-a", "stick", adminAccess=True), name="look", uid="uid-9")
    )
    agent = world.agent()
    await agent.preparer.prepare(looking)
    record = await agent.preparer.prepare(ClaimRef("lab", "stick", ClaimUid("uid-1")))
    held = record.devices[0].held
    await agent.preparer.unprepare(looking)
    assert agent.attacher.calls == ["observe stick", "attach stick"]
    assert [name for name, _ in world.kernel.ports.values()] == ["stick"]
    seen = await agent.preparer.prepare(looking)
    assert seen.devices[0].held == held


async def test_host_drivers_are_kept_off_when_asked(world: World) -> None:
    (ref,) = world.add(claim(result("usb", "usb-a", "stick"), config=[opaque(driver="none")]))
    agent = world.agent()
    await agent.preparer.prepare(ref)
    assert agent.attacher.orders[0].host_drivers is False


async def test_r50_same_answer_and_nothing_twice(world: World) -> None:
    good, bad = world.add(remote_claim(), remote_claim("second", "uid-3", "second"))
    agent = world.agent()
    agent.attacher.failures["second"] = Unreachable("node a does not answer")
    first = await agent.preparer.prepare(good)
    for _ in range(2):
        with pytest.raises(Unreachable):
            await agent.preparer.prepare(bad)
    reads = world.api.reads
    assert await agent.preparer.prepare(good) == first
    assert world.api.reads == reads, "a prepared claim is answered without the API"
    assert agent.attacher.calls.count("attach stick") == 1
    assert len(world.specs()) == 1
    assert len(world.kernel.ports) == 1


async def test_prepared_claims_are_served_while_the_api_is_away(world: World) -> None:
    (ref,) = world.add(remote_claim())
    agent = world.agent()
    first = await agent.preparer.prepare(ref)
    world.api.error = Unreachable("no API")
    assert await agent.preparer.prepare(ref) == first
    await agent.preparer.unprepare(ref)
    assert world.left() == []


async def test_api_away_during_prepare_is_an_error_of_the_claim_and_passes(world: World) -> None:
    (ref,) = world.add(remote_claim())
    agent = world.agent()
    world.api.error = Unreachable("the API server does not answer")
    with pytest.raises(Unreachable):
        await agent.preparer.prepare(ref)
    assert world.left() == []
    world.api.error = None
    await agent.preparer.prepare(ref)
    assert len(world.kernel.ports) == 1


async def test_claim_gone_or_replaced(world: World) -> None:
    agent = world.agent()
    with pytest.raises(NotFound, match=r"claim lab/none .*is not in the API any more"):
        await agent.preparer.prepare(ClaimRef("lab", "none", ClaimUid("u")))
    world.add(remote_claim(uid="new"))
    with pytest.raises(Refused, match="was replaced by another of the same name, UID new"):
        await agent.preparer.prepare(ClaimRef("lab", "stick", ClaimUid("old")))
    assert world.left() == []


@pytest.mark.parametrize("error", [None, Unreachable("no answer"), Refused("forbidden")])
async def test_r46_release_needs_no_api_and_unknown_claims_are_released(
    world: World, error: UsbdraError | None
) -> None:
    (ref,) = world.add(remote_claim())
    agent = world.agent()
    await agent.preparer.prepare(ref)
    world.api.claims.clear()
    world.api.error = error
    reads = world.api.reads
    await agent.preparer.unprepare(ref)
    await agent.preparer.unprepare(ClaimRef("lab", "never", ClaimUid("never-seen")))
    assert world.api.reads == reads
    assert world.left() == []


async def test_r47_one_device_two_claims(world: World) -> None:
    first, second = world.add(remote_claim(), remote_claim("other", "uid-5"))
    agent = world.agent()
    await agent.preparer.prepare(first)
    with pytest.raises(DeviceBusy, match=r"stick is in use by claim lab/stick \(uid-1\)"):
        await agent.preparer.prepare(second)
    assert len(world.kernel.ports) == 1
    await agent.preparer.unprepare(first)
    await agent.preparer.prepare(second)
    assert world.specs() == ["usb.virtualization.deckhouse.io_claim_uid-5.json"]


async def test_r47_two_claims_at_the_same_time(world: World) -> None:
    refs = world.add(remote_claim(), remote_claim("other", "uid-5"))
    agent = world.agent()
    results = await asyncio.gather(*map(agent.preparer.prepare, refs), return_exceptions=True)
    assert [type(r) for r in results if isinstance(r, Exception)] == [DeviceBusy]
    assert len(world.kernel.ports) == 1


async def test_no_free_port_is_said_and_leaves_nothing(world: World) -> None:
    world.kernel.per_hub = 0
    (ref,) = world.add(claim(result("usb", "usb-a", "stick")))
    agent = world.agent()
    with pytest.raises(NoFreePort, match="no high-speed port free"):
        await agent.preparer.prepare(ref)
    await settled()
    assert agent.reporter.events == [("uid-1", "NoFreeUSBIPPort", True)]
    assert world.left() == []


def two_devices() -> dict[str, object]:
    return claim(result("one", "usb-a", "stick"), result("two", "usb-a", "second"))


async def test_r47_a_claim_that_is_refused_leaves_the_disk_alone(world: World) -> None:
    """The kubelet asks again and again; nothing is held of it that a start would have to know."""
    refs = world.add(remote_claim(), local_claim())
    agent = world.agent()
    for ref, device in zip(refs, ("stick", "mouse"), strict=True):
        agent.attacher.failures[device] = DeviceBusy(device, "claim lab/other (uid-9)")
        with pytest.raises(DeviceBusy):
            await agent.preparer.prepare(ref)
    assert agent.store.saves == 0
    assert world.left() == []


async def test_r45_failure_half_way_takes_everything_back(world: World) -> None:
    (ref,) = world.add(two_devices())
    agent = world.agent()
    agent.attacher.failures["second"] = Unreachable("node a does not answer")
    with pytest.raises(Unreachable):
        await agent.preparer.prepare(ref)
    assert agent.attacher.calls == [
        "attach stick",
        "attach second",
        "release second",
        "release stick",
    ]
    assert world.left() == []


async def test_r45_r61_files_that_cannot_be_written_take_everything_back(world: World) -> None:
    (ref,) = world.add(remote_claim())
    world.node_errors["/dev/bus/usb/005/002"] = AttachFailed("not a character device node")
    agent = world.agent()
    with pytest.raises(AttachFailed, match="not a character device node"):
        await agent.preparer.prepare(ref)
    assert world.left() == []


async def test_r45_what_cannot_be_taken_back_stays_on_record_and_is_worked_off(
    world: World,
) -> None:
    (ref,) = world.add(two_devices())
    agent = world.agent(retries=(0.0,))
    agent.attacher.failures["second"] = Unreachable("first error")
    gate = agent.attacher.release_gates["stick"] = asyncio.Event()
    gate.set()
    agent.attacher.release_failures["stick"] = DetachStuck("second error")
    with pytest.raises(Unreachable, match="first error"):
        await agent.preparer.prepare(ref)
    (record,) = agent.records.all().values()
    assert (record.phase, record.error) == (Phase.RELEASING, "second error")
    assert [d.name for d in record.devices if d.held] == ["stick"]
    del agent.attacher.release_failures["stick"]
    await until(lambda: not world.left())


async def test_the_other_node_is_reached_while_a_claim_is_planned(world: World) -> None:
    """And none is for a device of this node, or for a look."""
    refs = world.add(remote_claim(), local_claim())
    agent = world.agent()
    for ref in refs:
        await agent.preparer.prepare(ref)
    assert agent.attacher.reached == ["a", None]


async def test_r51_full_disk_fails_before_any_kernel_change(world: World) -> None:
    (ref,) = world.add(remote_claim())
    agent = world.agent()
    first_devnum = world.kernel.next_devnum
    agent.store.error = StateError("record cannot be written: No space left on device")
    with pytest.raises(StateError, match="No space left"):
        await agent.preparer.prepare(ref)
    assert world.kernel.next_devnum == first_devnum, "nothing was ever attached"
    assert world.left() == []


async def test_full_disk_does_not_keep_devices_from_going_back(world: World) -> None:
    (ref,) = world.add(remote_claim())
    agent = world.agent()
    await agent.preparer.prepare(ref)
    agent.store.error = StateError("No space left on device")
    await agent.preparer.unprepare(ref)
    assert world.left() == []


async def test_full_disk_half_way_takes_the_device_back(world: World) -> None:
    (ref,) = world.add(remote_claim())
    agent = world.agent()
    gate = agent.attacher.gates["stick"] = asyncio.Event()
    task = asyncio.create_task(agent.preparer.prepare(ref))
    await until(lambda: "attach stick" in agent.attacher.calls)
    agent.store.error = StateError("No space left on device")
    gate.set()
    with pytest.raises(StateError, match="No space left"):
        await task
    assert world.left() == []


async def test_r49_a_slow_claim_holds_up_no_other(world: World) -> None:
    slow, quick = world.add(remote_claim(), remote_claim("second", "uid-3", "second"))
    agent = world.agent(prepare=2.0)
    agent.attacher.gates["stick"] = asyncio.Event()
    loop = asyncio.get_running_loop()
    start = loop.time()
    waiting = asyncio.create_task(agent.preparer.prepare(slow))
    await agent.preparer.prepare(quick)
    assert not waiting.done()
    with pytest.raises(OutOfTime, match="ran out of time while attaching stick of node a"):
        await waiting
    assert loop.time() - start < 20  # below the 45 s of the kubelet, on any machine
    assert [name for name, _ in world.kernel.ports.values()] == ["second"]


async def test_a_call_for_a_claim_at_work_says_what_it_waits_for(world: World) -> None:
    (ref,) = world.add(remote_claim())
    agent = world.agent(unprepare=0.05)
    gate = agent.attacher.gates["stick"] = asyncio.Event()
    first = asyncio.create_task(agent.preparer.prepare(ref))
    await until(lambda: agent.attacher.calls)
    with pytest.raises(ClaimBusy, match="waits for an earlier call: attaching stick of node a"):
        await agent.preparer.unprepare(ref)
    gate.set()
    await first


async def test_r70_prepare_during_release_comes_after_it(world: World) -> None:
    (ref,) = world.add(remote_claim())
    agent = world.agent()
    await agent.preparer.prepare(ref)
    gate = agent.attacher.release_gates["stick"] = asyncio.Event()
    releasing = asyncio.create_task(agent.preparer.unprepare(ref))
    await until(lambda: "release stick" in agent.attacher.calls)
    preparing = asyncio.create_task(agent.preparer.prepare(ref))
    await asyncio.sleep(0.01)
    assert agent.attacher.calls.count("attach stick") == 1
    gate.set()
    await releasing
    record = await preparing
    assert agent.attacher.calls == ["attach stick", "release stick", "attach stick"]
    assert record.phase is Phase.PREPARED
    assert len(world.kernel.ports) == 1
    assert await agent.preparer.prepare(ref) == record


async def test_a_release_that_failed_is_finished_before_the_claim_is_prepared(
    world: World,
) -> None:
    (ref,) = world.add(remote_claim())
    agent = world.agent()
    await agent.preparer.prepare(ref)
    agent.attacher.release_failures["stick"] = DetachStuck("port 0 stays used")
    with pytest.raises(DetachStuck):
        await agent.preparer.unprepare(ref)
    with pytest.raises(DetachStuck):
        await agent.preparer.prepare(ref)
    del agent.attacher.release_failures["stick"]
    record = await agent.preparer.prepare(ref)
    assert record.devices[0].held is not None
    assert len(world.kernel.ports) == 1


async def test_another_device_than_asked_for_is_given_back(world: World) -> None:
    fact = UsbFact(
        DeviceName("stick"), NodeName("a"), Speed.HIGH, Identity("0951", "1666", "OTHER")
    )
    world.api.facts["usb-a", "stick"] = fact
    (ref,) = world.add(remote_claim())
    agent = world.agent()
    text = "should be 0951:1666 with serial 'OTHER' and is 0951:1666 with serial 'STICK'"
    with pytest.raises(Refused, match=f"device stick of node a {text}"):
        await agent.preparer.prepare(ref)
    assert world.left() == []


async def test_a_lost_device_is_attached_again_and_running_ones_are_kept(world: World) -> None:
    (ref,) = world.add(two_devices())
    agent = world.agent()
    first = await agent.preparer.prepare(ref)
    world.kernel.ports.pop(PortId(1))
    again = await agent.preparer.restore(ref)
    assert again is not None
    assert again.devices[0] == first.devices[0]
    assert again.devices[1].held != first.devices[1].held
    assert agent.attacher.calls.count("attach stick") == 1
    spec = json.loads((world.path / "cdi" / world.specs()[0]).read_text())
    nodes = [d["containerEdits"]["deviceNodes"][0]["path"] for d in spec["devices"]]
    assert nodes == ["/dev/bus/usb/005/002", "/dev/bus/usb/005/004"]


async def test_a_failed_restore_takes_nothing_away(world: World) -> None:
    (ref,) = world.add(two_devices())
    agent = world.agent()
    await agent.preparer.prepare(ref)
    world.kernel.ports.pop(PortId(1))
    agent.attacher.failures["second"] = Unreachable("node a is gone")
    for call in (agent.preparer.restore, agent.preparer.prepare):
        with pytest.raises(Unreachable):
            await call(ref)
    assert [name for name, _ in world.kernel.ports.values()] == ["stick"]
    del agent.attacher.failures["second"]
    assert (await agent.preparer.prepare(ref)).phase is Phase.PREPARED
    assert len(world.kernel.ports) == 2
    await agent.preparer.unprepare(ref)
    assert await agent.preparer.restore(ref) is None
    assert world.left() == []


async def test_missing_files_are_written_again(world: World) -> None:
    (ref,) = world.add(remote_claim())
    agent = world.agent()
    record = await agent.preparer.prepare(ref)
    (world.path / "cdi" / world.specs()[0]).unlink()
    assert await agent.preparer.prepare(ref) == record
    assert len(world.specs()) == 1
    assert agent.attacher.calls == ["attach stick"]


async def test_claims_of_one_node_are_prepared_side_by_side(world: World) -> None:
    names = [f"stick{n}" for n in range(8)]
    for name in names:
        world.api.facts["usb-a", name] = usb_fact(name)
    refs = world.add(*(remote_claim(name, f"uid-{name}", name) for name in names))
    agent = world.agent()
    gates = {name: asyncio.Event() for name in names}
    agent.attacher.gates |= gates
    task = asyncio.gather(*map(agent.preparer.prepare, refs))
    await until(lambda: len(agent.attacher.calls) == 8)
    for gate in gates.values():
        gate.set()
    records: list[ClaimRecord] = await task
    assert {r.phase for r in records} == {Phase.PREPARED}
    assert len(world.kernel.ports) == 8


async def test_r42_two_agents_take_turns_and_see_each_others_records(world: World) -> None:
    first, second = world.add(remote_claim(), remote_claim("second", "uid-3", "second"))
    old, new = world.agent(), world.agent()
    gate = old.attacher.gates["stick"] = asyncio.Event()
    running = asyncio.create_task(old.preparer.prepare(first))
    await until(lambda: old.attacher.calls)
    waiting = asyncio.create_task(new.preparer.prepare(second))
    await asyncio.sleep(0.02)
    assert new.attacher.calls == []
    gate.set()
    record = await running
    await waiting
    assert await new.preparer.prepare(first) == record
    assert new.attacher.calls == ["attach second"]
    await new.preparer.unprepare(first)
    await old.preparer.unprepare(second)
    assert world.left() == []
