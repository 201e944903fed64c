# SPDX-License-Identifier: Apache-2.0
"""Resets that a cluster's controller asks a host outside for: each once, of what is offered."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.fakes.broker import STICK, FakeBroker
from usbdra.errors import DeviceBusy, UsbdraError
from usbdra.exporter.broker import Peer
from usbdra.exporter.hostresets import HostResets
from usbdra.resetword import make
from usbdra.state.resets import ResetSchema
from usbdra.state.store import RecordStore
from usbdra.types import CONTROLLER, DeviceName
from usbdra.usbip.errands import Reset, ResetAnswer

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
LEADER = Peer("192.0.2.1", 1, CONTROLLER, True)
WORD = make(NOW, force=True).word
ASKED = Reset(str(STICK.name), WORD)


class Host:
    """What is reset there; `error` is what becomes of it."""

    def __init__(self, folder: Path, broker: FakeBroker) -> None:
        self.acts: list[tuple[str, bool]] = []
        self.error: BaseException | None = None
        self._folder = folder
        self._broker = broker

    async def act(self, name: DeviceName, force: bool) -> None:
        self.acts.append((name, force))
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error

    def program(self) -> HostResets:
        """One run of `usbdra serve`."""
        store = RecordStore(self._folder, ResetSchema())
        return HostResets(self._broker, store, self.act, lambda: NOW)


@pytest.fixture
def host(tmp_path: Path, broker: FakeBroker) -> Host:
    return Host(tmp_path, broker)


async def test_a_request_is_carried_out_once_however_often_it_is_heard(host: Host) -> None:
    done = ResetAnswer(WORD, "Reset", "reset by its host")
    resets = host.program()
    assert [await resets(LEADER, ASKED) for _ in range(2)] == [done, done]
    assert await host.program()(LEADER, ASKED) == done
    assert host.acts == [(STICK.name, True)]
    later = Reset(ASKED.device, make(NOW + timedelta(seconds=1), force=False).word)
    assert (await resets(LEADER, later)).reason == "Reset"
    assert host.acts[1:] == [(STICK.name, False)]


async def test_one_that_is_under_way_is_waited_for(host: Host) -> None:
    resets = host.program()
    first, second = await asyncio.gather(resets(LEADER, ASKED), resets(LEADER, ASKED))
    assert first == second == ResetAnswer(WORD, "Reset", "reset by its host")
    assert len(host.acts) == 1


async def test_what_went_wrong_is_the_answer_and_not_tried_again(host: Host) -> None:
    host.error = DeviceBusy(str(STICK.name), "claim lab/one")
    resets = host.program()
    answer = await resets(LEADER, ASKED)
    assert answer.reason == "Busy"
    assert answer.text.startswith(f"not reset: device {STICK.name} is in use by claim lab/one")
    assert await resets(LEADER, ASKED) == answer
    assert len(host.acts) == 1


async def test_one_that_was_interrupted_is_not_done_again(host: Host) -> None:
    host.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        await host.program()(LEADER, ASKED)
    answer = await host.program()(LEADER, ASKED)
    assert (answer.reason, "ask again" in answer.text) == ("Interrupted", True)
    assert len(host.acts) == 1


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (Reset("another", WORD), "NotFound"),
        (Reset(ASKED.device, make(NOW - timedelta(hours=1), force=True).word), "TooLate"),
        (Reset(ASKED.device, "soon"), "BadConfig"),
    ],
    ids=["not offered", "old", "odd"],
)
async def test_what_is_not_to_be_done(host: Host, asked: Reset, reason: str) -> None:
    assert (await host.program()(LEADER, asked)).reason == reason
    assert host.acts == []


async def test_a_record_that_cannot_be_written_is_a_reset_that_is_not_done(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise UsbdraError("no space")

    monkeypatch.setattr(RecordStore, "save", full)
    assert (await host.program()(LEADER, ASKED)).text == "not reset: no space"
    assert host.acts == []
