# SPDX-License-Identifier: Apache-2.0
"""Leader election: one at a time, handed over at once, lost in time."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.fakes.kube import FakeKube
from tests.waiting import patience
from usbdra.controller.leader import Leader, Times
from usbdra.kube import errors
from usbdra.kube.types import LEASE

QUICK = Times(duration=60.0, deadline=30.0, every=0.01)
"""A busy machine costs nobody the lease, and what is waited for comes before it would end."""
HASTY = Times(duration=60.0, deadline=0.06, every=0.01)


class Clock:
    """The candidates' own clock, moved by the test and by each candidate's loop."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return asyncio.get_running_loop().time() + self.ahead


def candidate(api: FakeKube, name: str, clock: Clock | None = None, times: Times = QUICK) -> Leader:
    return Leader(api, "controller", "ns", name, times=times, clock=clock or Clock())


class Work:
    """Work that says when it runs and ends only when it is told to."""

    def __init__(self) -> None:
        self.started, self.stopped = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.set()


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def holder(api: FakeKube) -> str:
    (lease,) = api.all(LEASE)
    return str(lease["spec"]["holderIdentity"])


async def test_one_leads_the_other_waits_and_takes_over_at_once_when_it_is_given_back() -> None:
    api, first, second = FakeKube(), Work(), Work()
    one = asyncio.create_task(candidate(api, "one").lead(first))
    await first.started.wait()
    two = asyncio.create_task(candidate(api, "two").lead(second))
    await asyncio.sleep(0.05)
    assert not second.started.is_set()
    assert holder(api) == "one"
    await stop(one)
    assert first.stopped.is_set()
    async with patience():  # less than half of the lease's duration
        await second.started.wait()
    assert holder(api) == "two"
    await stop(two)
    assert api.all(LEASE)[0]["spec"]["leaseTransitions"] == 1


async def test_a_lease_that_is_not_renewed_is_taken_after_its_duration_on_our_own_clock() -> None:
    api, work, clock = FakeKube(), Work(), Clock()
    spec = {"holderIdentity": "dead", "leaseDurationSeconds": 15, "renewTime": "2099-01-01"}
    api.put(LEASE, {"metadata": {"name": "controller", "namespace": "ns"}, "spec": spec})
    task = asyncio.create_task(candidate(api, "heir", clock).lead(work))
    await asyncio.sleep(0.05)
    assert not work.started.is_set()
    clock.ahead = 16.0
    await work.started.wait()
    assert holder(api) == "heir"
    await stop(task)


async def test_a_leader_that_cannot_renew_stops_its_work_before_its_lease_ends() -> None:
    api, work = FakeKube(), Work()
    task = asyncio.create_task(candidate(api, "one", times=HASTY).lead(work))
    await work.started.wait()
    api.fail(errors.ApiUnavailable("replace", 0, "NoAnswer", "away"))
    async with patience():
        await task
    assert work.stopped.is_set()


async def test_a_leader_whose_lease_another_holds_stops_at_once() -> None:
    api, work = FakeKube(), Work()
    task = asyncio.create_task(candidate(api, "one").lead(work))
    await work.started.wait()
    (lease,) = api.all(LEASE)
    lease["spec"]["holderIdentity"] = "thief"
    api.put(LEASE, lease)
    await task
    assert work.stopped.is_set()
    assert holder(api) == "thief"


async def test_an_error_of_the_work_passes_and_the_lease_is_given_back() -> None:
    api = FakeKube()

    async def work() -> None:
        raise KeyError("a mistake")

    with pytest.raises(KeyError):
        await candidate(api, "one").lead(work)
    assert holder(api) == ""


async def test_an_api_server_that_is_away_at_the_start_is_asked_again() -> None:
    api, work = FakeKube(), Work()
    api.fail(errors.ApiUnavailable("get", 503, "", "starting"))
    task = asyncio.create_task(candidate(api, "one").lead(work))
    await asyncio.sleep(0.03)
    api.fail(None)
    await work.started.wait()
    await stop(task)
