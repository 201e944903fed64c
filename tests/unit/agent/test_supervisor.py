# SPDX-License-Identifier: Apache-2.0
"""When lost claims are attached again. Time is the loop's own, with pauses of milliseconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.conftest import open_descriptors
from tests.fakes.uevents import FakeUevents
from tests.waiting import patience, until
from usbdra.agent.supervisor import Cause, Pauses, Supervisor
from usbdra.discovery.uevent import UeventHub
from usbdra.errors import KernelUnsupported, PeerRefused, Unreachable
from usbdra.state.claims import ClaimRecord, ClaimRef, Phase
from usbdra.types import ClaimUid, Endpoints, Uevent

REF = ClaimRef("lab", "stick", ClaimUid("uid-1"))
LINK = Endpoints("10.0.0.2", 50000, "10.0.0.1", 3241)
WHOLE = ClaimRecord(REF, Phase.PREPARED, "boot", ())
GONE = Uevent("remove", "/devices/platform/vhci_hcd.0/usb5/5-1", "usb", "usb_device")
FAST = Pauses(first=0.001, longest=0.004, jitter=0.0, stable=60.0)


class Claims:
    """Losses and restoring of one claim. `answers` are what attempts come to, the last repeats."""

    def __init__(self, *answers: ClaimRecord | Exception | None) -> None:
        self.answers = list(answers or (WHOLE,))
        self.lacking: list[ClaimRef] = []
        self.attempts: list[float] = []
        self.looks = 0
        self.local = False
        self.error: Exception | None = None
        self.gate: asyncio.Event | None = None

    def link_ended(self, link: Endpoints) -> ClaimRef | None:
        return REF if link == LINK else None

    async def check(self) -> list[ClaimRef]:
        self.looks += 1
        if self.error is not None:
            raise self.error
        return self.lacking

    def lacks_local(self, uid: ClaimUid) -> bool:
        return self.local

    async def restore(self, ref: ClaimRef) -> ClaimRecord | None:
        assert ref == REF
        self.attempts.append(asyncio.get_running_loop().time())
        if self.gate is not None:
            await self.gate.wait()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@asynccontextmanager
async def supervised(
    claims: Claims, pauses: Pauses = FAST, number: float = 0.5, **hooks: Callable[..., Any]
) -> AsyncIterator[tuple[Supervisor, FakeUevents]]:
    source = FakeUevents()
    hub = UeventHub(source)
    hub.start()
    one = Supervisor(claims, claims.restore, hub, random=lambda: number, pauses=pauses, **hooks)
    task = asyncio.create_task(one.run())
    try:
        await until(lambda: claims.looks == 1)
        yield one, source
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        hub.close()


@contextmanager
def nothing_left() -> Iterator[None]:
    before = set(open_descriptors())
    yield
    assert set(open_descriptors()) <= before


async def test_a_lost_link_is_restored_at_once() -> None:
    claims = Claims()
    async with supervised(claims, Pauses()) as (supervisor, _):
        supervisor.link_ended(Endpoints("10.0.0.9", 1, "10.0.0.1", 3241))
        assert supervisor.restoring == 0
        supervisor.link_ended(LINK)
        assert supervisor.restoring == 1
        await until(lambda: supervisor.restoring == 0)
    assert len(claims.attempts) == 1


async def test_what_was_lost_before_the_start_is_found() -> None:
    claims = Claims()
    claims.lacking = [REF]
    async with supervised(claims):
        await until(lambda: claims.attempts)


async def test_removed_devices_and_lost_news_are_reasons_to_look_others_are_not() -> None:
    claims = Claims()
    async with supervised(claims) as (supervisor, source):
        source.send(Uevent("add", GONE.devpath, "usb", "usb_device"))
        source.send(Uevent("remove", GONE.devpath + "/5-1:1.0", "usb", "usb_interface"))
        source.send(Uevent("unbind", GONE.devpath, "usb", "usb_device"))
        source.send(GONE)
        await until(lambda: claims.looks == 2)
        source.overrun()
        await until(lambda: claims.looks == 3)
        supervisor.link_ended(None)
        await until(lambda: claims.looks == 4)
        claims.error = KernelUnsupported("vhci is gone")
        supervisor.link_ended(None)
        await until(lambda: claims.looks == 5)
        claims.error, claims.lacking = None, [REF]
        source.send(GONE)
        await until(lambda: claims.attempts)


async def test_r24_attempts_go_on_with_growing_pauses_until_the_exporter_is_back() -> None:
    claims = Claims(*[Unreachable("no route")] * 4, WHOLE)
    pauses = Pauses(first=0.01, longest=0.04, jitter=0.0)
    async with supervised(claims, pauses) as (supervisor, _):
        supervisor.link_ended(LINK)
        await until(lambda: supervisor.restoring == 0)
    waited = [b - a for a, b in zip(claims.attempts, claims.attempts[1:], strict=False)]
    assert len(waited) == 4
    for seconds, least in zip(waited, (0.01, 0.02, 0.04, 0.04), strict=True):
        assert seconds >= least * 0.99


async def test_a_silent_node_is_tried_as_soon_as_it_answers() -> None:
    claims = Claims(Unreachable("no answer"), WHOLE)
    asked, back = asyncio.Event(), asyncio.Event()

    async def answers(ref: ClaimRef) -> bool:
        assert ref == REF
        asked.set()
        return await back.wait()

    async with supervised(claims, Pauses(first=60.0), answers=answers) as (supervisor, _):
        supervisor.link_ended(LINK)
        async with patience():
            await asked.wait()
        assert len(claims.attempts) == 1
        back.set()
        await until(lambda: supervisor.restoring == 0)
    assert len(claims.attempts) == 2


@pytest.mark.parametrize(
    ("error", "knocking"), [(Unreachable("no answer"), 0.0), (PeerRefused("busy", 1, "Busy"), 9.0)]
)
async def test_only_a_silent_node_is_waited_for_and_not_for_ever(
    error: Exception, knocking: float
) -> None:
    claims = Claims(error, error, WHOLE)

    async def answers(ref: ClaimRef) -> bool:
        raise AssertionError("nobody is to knock")

    pauses = Pauses(first=0.001, longest=0.002, jitter=0.0, knocking=knocking)
    async with supervised(claims, pauses, answers=answers) as (supervisor, _):
        supervisor.link_ended(LINK)
        await until(lambda: supervisor.restoring == 0)
    assert len(claims.attempts) == 3


async def test_a_node_of_unknown_address_is_tried_after_its_pause() -> None:
    claims = Claims(Unreachable("no answer"), WHOLE)

    async def answers(ref: ClaimRef) -> bool:
        return False

    async with supervised(claims, FAST, answers=answers) as (supervisor, _):
        supervisor.link_ended(LINK)
        await until(lambda: supervisor.restoring == 0)
    assert len(claims.attempts) == 2


@pytest.mark.parametrize("hours", [2, -2])
async def test_a_clock_that_jumps_changes_no_pause(
    hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims, real = Claims(Unreachable("no route"), WHOLE), time.time
    pauses = Pauses(first=0.02, longest=1.0, jitter=0.0)
    async with supervised(claims, pauses) as (supervisor, _):
        supervisor.link_ended(LINK)
        await until(lambda: claims.attempts)
        monkeypatch.setattr(time, "time", lambda: real() + hours * 3600)
        await until(lambda: supervisor.restoring == 0)
    first, second = claims.attempts
    assert 0.02 * 0.99 <= second - first < 1.0


async def test_pauses_are_spread_over_nodes() -> None:
    claims = Claims(Unreachable("no route"), WHOLE)
    pauses = Pauses(first=0.02, longest=1.0, jitter=0.5)
    async with supervised(claims, pauses, number=1.0) as (supervisor, _):
        supervisor.link_ended(LINK)
        await until(lambda: supervisor.restoring == 0)
    first, second = claims.attempts
    assert second - first >= 0.03 * 0.99


async def test_r25_a_flapping_link_keeps_its_pauses_and_leaves_nothing_behind() -> None:
    with nothing_left():
        claims = Claims()
        async with supervised(claims) as (supervisor, _):
            tasks = len(asyncio.all_tasks())
            for _ in range(20):
                supervisor.link_ended(LINK)
                await until(lambda: supervisor.restoring == 0)
            assert len(asyncio.all_tasks()) == tasks
    assert len(claims.attempts) == 20
    waited = [b - a for a, b in zip(claims.attempts, claims.attempts[1:], strict=False)]
    assert min(waited[3:]) >= FAST.longest * 0.99


async def test_a_link_that_held_for_long_is_restored_at_once_again() -> None:
    claims = Claims()
    pauses = Pauses(first=10.0, jitter=0.0, stable=0.005)
    async with supervised(claims, pauses) as (supervisor, _):
        supervisor.link_ended(LINK)
        await until(lambda: supervisor.restoring == 0)
        await asyncio.sleep(0.006)
        supervisor.link_ended(LINK)
        await until(lambda: len(claims.attempts) == 2)


async def test_r26_a_denied_attempt_is_not_repeated() -> None:
    claims = Claims(PeerRefused("a: claim was not given this device", 1, "Refused"))
    async with supervised(claims) as (supervisor, _):
        supervisor.link_ended(LINK)
        await until(lambda: supervisor.restoring == 0)
        await asyncio.sleep(FAST.longest * 3)
    assert len(claims.attempts) == 1


async def test_a_refusal_that_passes_is_waited_out() -> None:
    claims = Claims(PeerRefused("a: mounted there", 1, "InUse"), WHOLE)
    async with supervised(claims) as (supervisor, _):
        supervisor.link_ended(LINK)
        await until(lambda: supervisor.restoring == 0)
    assert len(claims.attempts) == 2


async def test_what_nobody_expected_is_logged_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    claims = Claims(ZeroDivisionError("a bug"), WHOLE)
    async with supervised(claims) as (supervisor, _):
        supervisor.link_ended(LINK)
        await until(lambda: supervisor.restoring == 0)
    assert len(claims.attempts) == 2
    assert "ZeroDivisionError: a bug" in caplog.text


async def test_a_look_that_breaks_ends_the_supervisor_visibly() -> None:
    claims = Claims()
    source = FakeUevents()
    hub = UeventHub(source)
    hub.start()
    claims.error = ZeroDivisionError("a bug")
    one = Supervisor(claims, claims.restore, hub, random=lambda: 0.5)
    with pytest.raises(ExceptionGroup) as caught:
        await one.run()
    assert caught.group_contains(ZeroDivisionError)
    hub.close()


async def test_a_claim_that_is_gone_is_given_up() -> None:
    claims = Claims(Unreachable("no route"), None)
    async with supervised(claims) as (supervisor, _):
        supervisor.link_ended(LINK)
        await until(lambda: supervisor.restoring == 0)
    assert len(claims.attempts) == 2


async def test_a_second_loss_during_an_attempt_costs_another_one_not_two_at_once() -> None:
    claims = Claims()
    claims.gate = asyncio.Event()
    async with supervised(claims) as (supervisor, _):
        supervisor.link_ended(LINK)
        await until(lambda: claims.attempts)
        supervisor.link_ended(LINK)
        assert supervisor.restoring == 1
        claims.gate.set()
        await until(lambda: supervisor.restoring == 0)
    assert len(claims.attempts) == 2


async def test_r34_a_plug_ends_the_pause_of_claims_that_wait_for_one() -> None:
    claims = Claims(Unreachable("not plugged in"), WHOLE)
    async with supervised(claims, Pauses(first=30.0)) as (supervisor, _):
        supervisor.link_ended(LINK)
        await until(lambda: claims.attempts)
        await asyncio.sleep(0)
        supervisor.devices_changed()  # another device, of no interest
        await asyncio.sleep(0.005)
        assert len(claims.attempts) == 1
        claims.local = True
        supervisor.devices_changed()
        await until(lambda: supervisor.restoring == 0)
    assert len(claims.attempts) == 2


async def test_a_stop_ends_what_is_under_way() -> None:
    with nothing_left():
        claims = Claims()
        claims.gate = asyncio.Event()
        async with supervised(claims) as (supervisor, _):
            supervisor.link_ended(LINK)
            await until(lambda: claims.attempts)
        assert supervisor.restoring == 0


async def test_losses_and_attempts_are_told_by_result() -> None:
    claims = Claims(Unreachable("b is away"), ValueError("ours"), WHOLE)
    lost: list[Cause] = []
    tried: list[str] = []
    async with supervised(claims, on_lost=lost.append, on_tried=tried.append) as (
        supervisor,
        _,
    ):
        supervisor.link_ended(LINK)
        await until(lambda: supervisor.restoring == 0)
    assert tried == ["Unreachable", "InternalError", "ok"]
    assert lost == [Cause.LINK]


async def test_r25_no_more_links_than_that_are_tried_at_once() -> None:
    refs = [ClaimRef("lab", f"stick-{n}", ClaimUid(f"uid-{n}")) for n in range(7)]
    tried: list[ClaimRef] = []
    step = asyncio.Semaphore(0)
    running = most = 0

    class Many(Claims):
        async def restore(self, ref: ClaimRef) -> ClaimRecord | None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            tried.append(ref)
            await step.acquire()
            running -= 1
            if tried.count(ref) == 1:
                raise Unreachable("no route")  # and leaves its place to another
            return WHOLE

    async with supervised(Many(), replace(FAST, at_once=3)) as (supervisor, _):
        for ref in refs:
            supervisor.restore(ref, Cause.LINK)
        await until(lambda: len(tried) == 3)
        for number in range(4, 15):
            step.release()
            await until(lambda: len(tried) == number)  # noqa: B023
            assert supervisor.restoring >= 3
        for _ in range(3):
            step.release()
        await until(lambda: supervisor.restoring == 0)
    assert most == 3
    assert sorted(ref.name for ref in tried) == sorted([ref.name for ref in refs] * 2)
