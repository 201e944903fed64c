# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.unit.plugin.claims import remote_claim
from tests.unit.plugin.world import World
from usbdra.errors import NotFound
from usbdra.plugin.acts import Step
from usbdra.plugin.steps import StepTimes
from usbdra.state.claims import ClaimRef
from usbdra.types import ClaimUid

ONE, TWO = ClaimUid("one"), ClaimUid("two")


class Clock:
    """Shows one second more at each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def test_times_between_steps_of_two_claims() -> None:
    seen: list[Step] = []
    times = StepTimes(lambda step, uid: seen.append(step), Clock())
    times.begin(ONE)  # 1
    times.begin(TWO)  # 2
    times(Step.RECORDED, ONE)  # 3
    times(Step.RECORDED, TWO)  # 4
    times(Step.PREPARED, ONE)  # 5
    assert times.end(ONE) == {"recorded": 2000.0, "prepared": 2000.0, "total": 5000.0}
    assert times.end(TWO) == {"recorded": 2000.0, "total": 5000.0}
    assert seen == [Step.RECORDED, Step.RECORDED, Step.PREPARED]


def test_a_step_for_each_device_is_summed_up() -> None:
    times = StepTimes(lambda step, uid: None, Clock())
    times.begin(ONE)
    for _ in range(2):
        times(Step.TAKEN, ONE)
        times(Step.HELD, ONE)
    assert times.end(ONE) == {"taken": 2000.0, "held": 2000.0, "total": 5000.0}


def test_work_that_never_began_has_no_times() -> None:
    times = StepTimes(lambda step, uid: None, Clock())
    times(Step.RECORDED, ONE)
    assert times.end(ONE) == {}


async def test_each_claim_has_a_line_at_its_start_and_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path)
    (ref,) = world.add(remote_claim())
    preparer = world.agent().preparer
    with caplog.at_level(logging.INFO, "usbdra.plugin.prepare"):
        await preparer.prepare(ref)
        await preparer.prepare(ref)  # nothing new: no line
        await preparer.unprepare(ref)
    await world.aclose()
    prepared, given_back = caplog.records
    assert (prepared.message, given_back.message) == ("claim prepared", "claim given back")
    steps = ["recorded", "intended", "taken", "held", "files-written", "prepared", "total"]
    assert list(vars(prepared)["took_ms"]) == steps
    back = ["releasing", "files-removed", "released", "forgotten", "total"]
    assert list(vars(given_back)["took_ms"]) == back
    assert vars(prepared)["claim"] == str(ref)


async def test_what_was_done_and_how_it_ended_is_told(tmp_path: Path) -> None:
    world = World(tmp_path)
    (ref,) = world.add(remote_claim())
    agent = world.agent()
    await agent.preparer.prepare(ref)
    await agent.preparer.prepare(ref)  # nothing was done
    await agent.preparer.unprepare(ref)
    await agent.preparer.unprepare(ref)  # nor here
    with pytest.raises(NotFound):
        await agent.preparer.prepare(ClaimRef("lab", "nothing", TWO))
    await world.aclose()
    assert [(what, result) for what, result, _ in agent.done] == [
        ("prepare", "ok"),
        ("unprepare", "ok"),
        ("prepare", "NotFound"),
    ]
    assert [list(took)[-1] for _, _, took in agent.done] == ["total"] * 3
    assert "recorded" not in agent.done[2][2]
