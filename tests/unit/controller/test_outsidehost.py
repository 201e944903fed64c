# SPDX-License-Identifier: Apache-2.0
"""One host outside the cluster, as the API and its devices show it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.fakes.broker import KEYBOARD, STICK
from tests.fakes.kube import FakeKube
from tests.unit.controller.make import CONTRACT
from tests.waiting import until
from usbdra import resetword
from usbdra.controller import outsidehost
from usbdra.controller.outsidehost import HostFacts, OutsideHost
from usbdra.controller.outsidelink import Seen
from usbdra.errors import Unreachable, UsbdraError
from usbdra.kube.types import EVENT, RESOURCE_SLICE, Object
from usbdra.usbip.errands import Reset, ResetAnswer

KEY = CONTRACT.key
NOW = datetime(2026, 1, 2, tzinfo=UTC)


class Host:
    """A host whose answers the test gives, and what became of them."""

    def __init__(self, api: FakeKube) -> None:
        self.api = api
        self.answers: asyncio.Queue[Seen | UsbdraError] = asyncio.Queue()
        self.asked = 0
        self.results: list[str] = []
        self.resets: list[Reset] = []
        self.refusal: UsbdraError | None = None
        self.facts: Callable[[], HostFacts] = lambda: HostFacts("", False, 0, None, None)

    async def look(self) -> Seen:
        self.asked += 1
        answer = await self.answers.get()
        if isinstance(answer, UsbdraError):
            raise answer
        return answer

    async def reset(self, asked: Reset) -> ResetAnswer:
        self.resets.append(asked)
        if self.refusal is not None:
            raise self.refusal
        return ResetAnswer(asked.word, "Reset", "reset by its host")

    def ready(self) -> tuple[str, str]:
        status = self.api.all(CONTRACT.host)[0].get("status") or {}
        return next(((c["status"], c["reason"]) for c in status.get("conditions", ())), ("", ""))

    def taints(self) -> list[list[str]]:
        """Keys of the taints of each published device."""
        return [
            [taint["key"] for taint in device.get("taints", ())]
            for item in self.api.all(RESOURCE_SLICE)
            for device in item["spec"]["devices"]
        ]


@asynccontextmanager
async def running(
    api: FakeKube, assignment: str = "Off", seconds: float = 0
) -> AsyncIterator[Host]:
    item: Object = {"metadata": {"name": "pi"}, "spec": {"address": "192.0.2.7"}}
    host = Host(api)
    stored = api.put(CONTRACT.host, item)
    follower = OutsideHost(
        api,
        CONTRACT,
        stored,
        host.look,
        host.reset,
        assignment=assignment,
        seconds=seconds,
        silent=0,
        again=0,
        on_look=host.results.append,
        clock=lambda: NOW,
    )
    host.facts = lambda: follower.facts
    task = asyncio.create_task(follower.run())
    try:
        yield host
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_what_the_host_lists_is_published_and_its_state_told() -> None:
    api = FakeKube()
    async with running(api) as host:
        host.answers.put_nowait(Seen([STICK], "Jan  1 00:00:00 2030 GMT"))
        await until(lambda: bool(api.all(RESOURCE_SLICE)) and host.ready() == ("True", "Ready"))
    status = api.all(CONTRACT.host)[0]["status"]
    assert status["devices"] == 1
    assert status["certificateUntil"] == "Jan  1 00:00:00 2030 GMT"
    assert host.taints() == [[]]


async def test_a_host_that_changes_nothing_costs_no_write() -> None:
    api = FakeKube()
    async with running(api) as host:
        host.answers.put_nowait(Seen([STICK]))
        await until(lambda: bool(api.all(RESOURCE_SLICE)) and host.ready() == ("True", "Ready"))
        before = len(api.requests)
        for _ in range(3):
            host.answers.put_nowait(Seen([STICK]))
        await until(lambda: host.asked == 5)
        assert len(api.requests) == before


async def test_one_look_that_fails_is_nothing_two_are_a_host_that_is_not_ready() -> None:
    api = FakeKube()
    async with running(api) as host:
        host.answers.put_nowait(Seen([STICK]))
        await until(lambda: host.ready() == ("True", "Ready"))
        host.answers.put_nowait(Unreachable("no route"))
        await until(lambda: host.asked == 3)
        assert host.ready() == ("True", "Ready")
        host.answers.put_nowait(Unreachable("no route"))
        await until(lambda: host.ready() == ("False", "Unreachable"))
        # What is there stays known, and is given to nobody new.
        await until(lambda: host.taints() == [[KEY("unreachable")]])
        host.answers.put_nowait(Seen([STICK]))
        await until(lambda: host.ready() == ("True", "Ready") and host.taints() == [[]])


async def test_what_an_earlier_controller_published_stays_until_the_host_answers() -> None:
    api = FakeKube()
    async with running(api) as host:
        host.answers.put_nowait(Seen([STICK]))
        await until(lambda: bool(api.all(RESOURCE_SLICE)))
    async with running(api) as host:
        for _ in range(3):
            host.answers.put_nowait(Unreachable("no route"))
        await until(lambda: host.ready() == ("False", "Unreachable") and host.asked == 4)
        assert len(api.all(RESOURCE_SLICE)) == 1
        host.answers.put_nowait(Seen([]))
        await until(lambda: not api.all(RESOURCE_SLICE))


async def test_devices_carry_the_namespace_fence() -> None:
    api = FakeKube()
    record: dict[str, Any] = {
        "metadata": {"name": STICK.name},
        "spec": {"assignedNamespace": "lab"},
        "status": {"host": "pi", "attributes": {"name": STICK.name}},
    }
    async with running(api, "Required") as host:
        host.answers.put_nowait(Seen([STICK]))
        await until(lambda: host.taints() == [[KEY("unassigned")]])
        api.put(CONTRACT.node_device, record)
        await until(lambda: host.taints() == [[KEY("assigned")]])


async def test_who_tells_of_news_is_asked_again_without_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outsidehost, "CALM", (0.0, 0.0))
    api = FakeKube()
    async with running(api, seconds=3600) as host:
        host.answers.put_nowait(Seen([STICK], tells=True))
        host.answers.put_nowait(Seen([STICK, KEYBOARD], tells=True))
        await until(lambda: len(host.taints()) == 2)
        host.answers.put_nowait(Seen([], tells=False))
        await until(lambda: not api.all(RESOURCE_SLICE))
        for _ in range(100):
            await asyncio.sleep(0)
        assert host.asked == 3, "who tells nothing is asked in an hour"


async def test_what_is_known_of_a_host_in_numbers() -> None:
    api = FakeKube()
    until_2030 = 1893456000.0
    async with running(api) as host:
        assert host.facts() == HostFacts("pi", False, 0, None, None)
        host.answers.put_nowait(Seen([STICK], "Jan  1 00:00:00 2030 GMT"))
        await until(lambda: host.ready() == ("True", "Ready"))
        assert host.facts() == HostFacts("pi", True, 1, NOW.timestamp(), until_2030)
        for _ in range(2):
            host.answers.put_nowait(Unreachable("no route"))
        await until(lambda: host.ready() == ("False", "Unreachable"))
        assert host.facts() == HostFacts("pi", False, 1, NOW.timestamp(), until_2030)
        assert host.results == ["ok", "Unreachable", "Unreachable"]
    async with running(api) as host:
        host.answers.put_nowait(Seen([STICK], "some day"))
        await until(lambda: host.ready() == ("True", "Ready"))
        assert host.facts().until is None


def stick(word: str, **meta: str) -> dict[str, Any]:
    return {
        "metadata": {"name": STICK.name, "annotations": {KEY("reset"): word}, **meta},
        "status": {"host": "pi", "attributes": {"name": STICK.name}},
    }


def events(api: FakeKube) -> list[tuple[str, str, str]]:
    return [(e["type"], e["reason"], e["note"]) for e in api.all(EVENT)]


@pytest.mark.parametrize("assignment", ["Off", "Required"])
async def test_a_reset_is_brought_to_the_host_once_and_answered(assignment: str) -> None:
    api, now = FakeKube(), datetime.now(UTC)
    word = resetword.make(now, force=True).word
    async with running(api, assignment) as host:
        api.put(CONTRACT.node_device, stick(word))
        await until(lambda: bool(api.all(EVENT)))
        assert host.resets == [Reset(str(STICK.name), word)]
        note = f"reset by its host [{word.removesuffix(',force')}]"
        assert events(api) == [("Normal", "Reset", note)]
        (event,) = api.all(EVENT)
        assert (event["action"], event["reportingInstance"]) == ("Reset", "pi")
        host.refusal = Unreachable("host pi does not answer")
        later = resetword.make(now + timedelta(seconds=1), force=False)
        api.put(CONTRACT.node_device, {**stick(later.word), "spec": {}})
        await until(lambda: len(api.all(EVENT)) == 2)
        said = ("Warning", "Unreachable", later.note("not reset: host pi does not answer"))
        assert said in events(api)
        assert len(host.resets) == 2


@pytest.mark.parametrize("word", ["soon", "2020-01-31T12:00:00Z"])
async def test_a_reset_that_is_odd_or_old_is_none(word: str) -> None:
    api = FakeKube()
    async with running(api) as host:
        api.put(CONTRACT.node_device, stick(word))
        host.answers.put_nowait(Seen([STICK]))
        await until(lambda: host.ready() == ("True", "Ready"))
        assert (host.resets, api.all(EVENT)) == ([], [])


async def test_a_word_that_no_host_would_read_is_answered_here() -> None:
    api = FakeKube()
    word = resetword.make(datetime.now(UTC), force=False).word.replace("T", " ")
    async with running(api) as host:
        api.put(CONTRACT.node_device, stick(word))
        await until(lambda: bool(api.all(EVENT)))
        assert host.resets == []
        assert events(api)[0][:2] == ("Warning", "BadConfig")
