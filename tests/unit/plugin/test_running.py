# SPDX-License-Identifier: Apache-2.0
"""What running containers of a claim may use, through losses, returns and strangers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tests.waiting import until
from usbdra.containers.live import Problem, Wanted
from usbdra.containers.processes import Container
from usbdra.errors import KernelUnsupported, Unreachable
from usbdra.plugin.acts import Step
from usbdra.state.claims import ClaimRef
from usbdra.types import ClaimUid

from .claims import claim, local_claim, opaque, remote_claim, result
from .test_losses import prepared
from .world import Agent, World

FIRST, SECOND = "c 189:513", "c 189:514"
"""Numbers of devices 2 and 3 of bus 5."""


async def told(agent: Agent) -> list[str]:
    await asyncio.sleep(0)
    return [t for t, e in zip(agent.reporter.texts, agent.reporter.events, strict=True)
            if e[1] == "RestartNeeded"]  # fmt: skip


async def test_a_claim_that_is_prepared_changes_nothing_that_runs(world: World) -> None:
    agent, [ref] = await prepared(world, remote_claim())
    await agent.preparer.prepare(ref)
    assert agent.containers.calls == []


async def test_r60_the_old_number_is_taken_when_the_link_ends(world: World) -> None:
    agent, [ref] = await prepared(world, remote_claim())
    agent.preparer.losses.link_ended(world.kernel.cut())
    await agent.preparer.losses.check()  # the same again is harmless
    assert agent.containers.calls[:1] == [(ref.uid, "usb", (), (FIRST,))]
    assert set(agent.containers.calls) == {(ref.uid, "usb", (), (FIRST,))}


async def test_what_is_back_is_given_before_its_links_appear(world: World) -> None:
    agent, [ref] = await prepared(world, remote_claim())
    agent.preparer.losses.link_ended(world.kernel.cut())
    links = world.path / "dev" / ref.uid / "links" / "usb"
    seen: list[bool] = []
    update = agent.containers.update_claim

    def watch(claim: ClaimUid, wanted: Mapping[str, Wanted]) -> list[Problem]:
        seen.append((links / "device").is_symlink())
        return update(claim, wanted)

    agent.containers.update_claim = watch  # type: ignore[method-assign]
    await agent.preparer.restore(ref)
    given = (ref.uid, "usb", ("/dev/bus/usb/005/003",), (FIRST,))
    assert agent.containers.calls[-2:] == [given, given]
    assert seen[-2:] == [False, True]


async def test_numbers_lost_earlier_stay_out_of_reach(world: World) -> None:
    agent, [ref] = await prepared(world, remote_claim())
    for _ in range(2):
        agent.preparer.losses.link_ended(world.kernel.cut())
        await agent.preparer.restore(ref)
    assert agent.containers.calls[-1] == (ref.uid, "usb", ("/dev/bus/usb/005/004",),
                                          (FIRST, SECOND))  # fmt: skip


async def test_a_number_that_comes_back_is_not_taken(world: World) -> None:
    agent, [ref] = await prepared(world, remote_claim())
    agent.preparer.losses.link_ended(world.kernel.cut())
    world.kernel.next_devnum = 2
    await agent.preparer.restore(ref)
    assert agent.containers.calls[-1] == (ref.uid, "usb", ("/dev/bus/usb/005/002",), ())


async def test_a_loss_that_was_none_is_given_back(world: World) -> None:
    agent, [ref] = await prepared(world, remote_claim())
    ((_, held),) = world.kernel.ports.values()
    assert held.link is not None
    agent.preparer.losses.link_ended(held.link)
    await agent.preparer.restore(ref)
    assert agent.containers.calls == [
        (ref.uid, "usb", (), (FIRST,)),
        (ref.uid, "usb", ("/dev/bus/usb/005/002",), ()),
    ]


async def test_r60_a_number_is_taken_from_who_lost_it_before_it_is_given_to_another(
    world: World,
) -> None:
    """The kernel gives the number anew before the loss is known here."""
    agent, [ref] = await prepared(world, remote_claim())
    world.kernel.cut()
    world.kernel.next_devnum = 2
    [other] = world.add(remote_claim("other", "uid-9", "second"))
    taken: list[int] = []
    agent.at_step = lambda step: (
        taken.append(len(agent.containers.calls)) if step is Step.FILES_WRITTEN else None
    )
    await agent.preparer.prepare(other)
    assert agent.containers.calls == [(ref.uid, "usb", (), (FIRST,))]
    assert taken == [1]


async def test_r60_also_long_after_the_loss(world: World) -> None:
    """A container that was made of files that still had the number is met then."""
    agent, [ref] = await prepared(world, remote_claim())
    agent.preparer.losses.link_ended(world.kernel.cut())
    await agent.preparer.restore(ref)
    agent.containers.calls.clear()
    world.kernel.next_devnum = 2
    [other] = world.add(remote_claim("other", "uid-9", "second"))
    await agent.preparer.prepare(other)
    assert agent.containers.calls == [(ref.uid, "usb", (), (FIRST,))]


async def lost_for_good(world: World, **limits: Any) -> tuple[Agent, ClaimRef]:
    """A claim whose device went with its node, and whose files say so."""
    (ref,), agent = world.add(remote_claim()), world.agent(**limits)
    await agent.preparer.prepare(ref)
    agent.preparer.losses.link_ended(world.kernel.cut())
    agent.attacher.failures["stick"] = Unreachable("node a does not answer")
    with pytest.raises(Unreachable):
        await agent.preparer.restore(ref)
    return agent, ref


def looking() -> int:
    """Claims whose containers are looked for."""
    return sum("_keep_looking" in str(task.get_coro()) for task in asyncio.all_tasks())


async def test_r60_a_container_that_was_being_made_is_looked_for_after_the_loss(
    world: World,
) -> None:
    agent, ref = await lost_for_good(world, late=(0.001,) * 100_000)
    agent.containers.calls.clear()
    await until(lambda: len(agent.containers.calls) > 2)
    assert set(agent.containers.calls) == {(ref.uid, "usb", (), (FIRST,))}
    await agent.preparer.unprepare(ref)
    await until(lambda: not looking())


async def test_the_looks_end_and_begin_anew_when_the_files_change(world: World) -> None:
    agent, ref = await lost_for_good(world, late=(0.001, 0.001))
    await until(lambda: not looking())
    with pytest.raises(Unreachable):
        await agent.preparer.restore(ref)  # which changes no file
    assert not looking()
    agent.attacher.failures.clear()
    await agent.preparer.restore(ref)
    agent.preparer.losses.link_ended(world.kernel.cut())
    await until(lambda: bool(looking()))
    await until(lambda: not looking())
    assert agent.containers.calls[-1] == (ref.uid, "usb", (), (FIRST, SECOND))


async def test_a_claim_that_is_over_is_looked_for_no_more(world: World) -> None:
    agent, ref = await lost_for_good(world, late=(3600.0,))
    assert looking() == 1
    await agent.preparer.unprepare(ref)
    await until(lambda: not looking())


async def test_who_has_the_number_now_is_known_to_each_look(world: World) -> None:
    agent, _ = await lost_for_good(world, late=(0.001,) * 100_000)
    agent.attacher.failures.clear()
    world.kernel.next_devnum = 2
    [other] = world.add(remote_claim("other", "uid-9", "second"))
    await agent.preparer.prepare(other)
    holders: set[str | None] = set()

    def update(claim: ClaimUid, wanted: Mapping[str, Wanted]) -> list[Problem]:
        holders.update(gone.holder for one in wanted.values() for gone in one.gone)
        return []

    agent.containers.update_claim = update  # type: ignore[method-assign]
    await until(lambda: holders == {other.uid})


async def test_a_claim_given_back_takes_its_numbers_along(world: World) -> None:
    agent, [ref] = await prepared(world, remote_claim())
    await agent.preparer.unprepare(ref)
    assert agent.containers.calls == [(ref.uid, "usb", (), (FIRST,))]
    world.kernel.next_devnum = 2
    agent.containers.calls.clear()
    await agent.preparer.prepare(ref)
    assert agent.containers.calls == []


async def test_another_agent_takes_what_was_lost_while_none_ran(world: World) -> None:
    first, [ref] = await prepared(world, remote_claim())
    await first.preparer.aclose()
    world.kernel.cut()
    agent = world.agent()
    await agent.records.load()
    await agent.recover()
    assert agent.containers.calls == [(ref.uid, "usb", (), (FIRST,))]


async def test_a_failed_attempt_gives_what_there_is(world: World) -> None:
    agent, [ref] = await prepared(world, remote_claim())
    agent.preparer.losses.link_ended(world.kernel.cut())
    agent.attacher.failures["stick"] = Unreachable("node a does not answer")
    with pytest.raises(Unreachable):
        await agent.preparer.restore(ref)
    assert agent.containers.calls[-1] == (ref.uid, "usb", (), (FIRST,))


async def test_a_container_that_cannot_be_changed_is_told_of_once(world: World) -> None:
    agent, [ref] = await prepared(world, remote_claim())
    container = Container("pod-1", "ab" * 32, ("/x",), 7)
    agent.containers.problems = [Problem(container, KernelUnsupported("no device program"))]
    for _ in range(2):
        agent.preparer.losses.link_ended(world.kernel.cut())
        await agent.preparer.restore(ref)
    where = "container abababababab of pod pod-1"
    assert await told(agent) == [
        f"{where} may still use a number that it has lost: no device program",
        f"{where} needs a restart to use its device again: no device program",
    ]


async def test_containers_that_are_not_known_keep_no_claim_from_its_device(world: World) -> None:
    agent, [ref] = await prepared(world, remote_claim())
    agent.containers.error = KernelUnsupported("no file system")
    agent.preparer.losses.link_ended(world.kernel.cut())
    record = await agent.preparer.restore(ref)
    assert record is not None
    assert (await told(agent))[0].startswith("a container may still use a number")


def restarting() -> dict[str, Any]:
    """A claim whose containers want to be started again."""
    body = remote_claim()
    body["status"]["allocation"]["devices"]["config"] = [opaque(onReconnect="restartContainer")]
    return body


async def test_containers_are_restarted_when_the_device_is_back_and_the_files_say_so(
    world: World,
) -> None:
    agent, [ref] = await prepared(world, restarting())
    agent.preparer.losses.link_ended(world.kernel.cut())
    agent.attacher.failures["stick"] = Unreachable("node a does not answer")
    with pytest.raises(Unreachable):
        await agent.preparer.restore(ref)
    assert agent.containers.restarted == []
    agent.attacher.failures.clear()
    steps: list[Step] = []
    agent.at_step = lambda step: steps.append(step) if not agent.containers.restarted else None
    await agent.preparer.restore(ref)
    assert agent.containers.restarted == [(ref.uid, {"usb"})]
    assert steps[-1] is Step.PREPARED
    agent.containers.restarted.clear()
    await agent.preparer.restore(ref)
    assert agent.containers.restarted == []


async def test_nothing_is_restarted_for_a_loss_that_was_none(world: World) -> None:
    agent, [ref] = await prepared(world, restarting())
    ((_, held),) = world.kernel.ports.values()
    assert held.link is not None
    agent.preparer.losses.link_ended(held.link)
    await agent.preparer.restore(ref)
    assert agent.containers.restarted == []


async def test_what_cannot_be_restarted_is_told(world: World) -> None:
    agent, [ref] = await prepared(world, restarting())
    container = Container("pod-1", "ab" * 32, ("/x",), 7)
    agent.containers.problems = [Problem(container, KernelUnsupported("no cgroup.kill"))]
    agent.preparer.losses.link_ended(world.kernel.cut())
    await agent.preparer.restore(ref)
    said = "container abababababab of pod pod-1 could not be restarted: no cgroup.kill"
    assert said in await told(agent)


async def test_local_devices_are_given_again_too(world: World) -> None:
    agent, [ref] = await prepared(world, local_claim())
    agent.attacher.gone.add("mouse")
    assert await agent.preparer.losses.check() == [ref]
    assert agent.containers.calls == [(ref.uid, "usb", (), ("c 189:3",))]
    agent.attacher.gone.clear()
    await agent.preparer.restore(ref)
    assert agent.containers.calls[-1] == (ref.uid, "usb", ("/dev/bus/usb/001/004",), ())


async def test_who_only_looks_takes_nothing_from_the_holder(world: World) -> None:
    """Admin access is handed the numbers of a device that another claim has, and keeps."""
    agent, [_] = await prepared(world, remote_claim())
    looking = claim(result("usb", "usb-a", "stick", adminAccess=True), name="look", uid="uid-9")
    (look,) = world.add(looking)
    record = await agent.preparer.prepare(look)
    assert record.devices[0].held is not None
    await agent.preparer.unprepare(look)
    assert agent.containers.calls == []
