# SPDX-License-Identifier: Apache-2.0
"""Resets by request: each once, whatever ends in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.kube import FakeKube
from tests.waiting import patience, until
from usbdra.agent.nodeobjects import NodeObjects
from usbdra.agent.resets import Resets
from usbdra.errors import DeviceBusy, UsbdraError
from usbdra.kube.custom import Contract
from usbdra.kube.types import EVENT, Kind
from usbdra.locks import ProcessLock
from usbdra.resetword import make
from usbdra.state.resets import ResetRecord, ResetSchema
from usbdra.state.store import RecordStore
from usbdra.types import DeviceName, NodeName

NAMES = Contract("example.com")
KIND = NAMES.node_device
NODE = NodeName("node-a")
STICK = DeviceName("usb-stick")
NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


def asked(word: str | None, *, node: str = NODE, name: str = "object") -> dict[str, Any]:
    annotations = {NAMES.key("reset"): word} if word else {}
    meta = {"name": name, "annotations": annotations}
    return {"metadata": meta, "status": {"nodeName": node, "attributes": {"name": STICK}}}


class Bench:
    """A node whose device can be reset, and what became of it."""

    def __init__(self, folder: Path) -> None:
        self.kube = FakeKube()
        self.kube.after_write = self._told
        self.folder = folder
        self.acts: list[tuple[str, bool]] = []
        self.error: UsbdraError | BaseException | None = None
        self.told = asyncio.Event()
        self.hold = asyncio.Event()
        self.hold.set()

    def _told(self, verb: str, kind: Kind, item: dict[str, Any]) -> None:
        self.told.set()

    async def act(self, name: DeviceName, force: bool) -> None:
        self.acts.append((name, force))
        await self.hold.wait()
        if self.error is not None:
            raise self.error

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[asyncio.Task[None]]:
        store = RecordStore(self.folder / "resets", ResetSchema())
        lock = ProcessLock(self.folder / "lock")
        objects = NodeObjects(self.kube, NAMES, NODE)
        part = Resets(self.kube, objects, NAMES, NODE, store, lock, self.act, now=lambda: NOW)
        task, watch = asyncio.create_task(part.run()), asyncio.create_task(objects.run())
        try:
            yield task
        finally:
            task.cancel()
            watch.cancel()
            await asyncio.gather(task, watch, return_exceptions=True)

    async def answer(self) -> tuple[str, str, str]:
        """(type, reason, note) of the next Event."""
        async with patience():
            await self.told.wait()
        self.told.clear()
        (event,) = self.kube.all(EVENT)
        self.kube.drop(EVENT, event["metadata"]["name"], "default")
        assert (event["action"], event["regarding"]["name"]) == ("Reset", "object")
        return event["type"], event["reason"], event["note"]


async def test_a_request_is_carried_out_once_and_answered(tmp_path: Path) -> None:
    bench, request = Bench(tmp_path), make(NOW, True)
    bench.kube.put(KIND, asked(None))
    async with bench.agent():
        bench.kube.put(KIND, asked(request.word))
        expected = ("Normal", "Reset", f"reset by node node-a [{request.token}]")
        assert await bench.answer() == expected
        bench.kube.put(KIND, asked(request.word))  # any other change of the object
        later = make(NOW + timedelta(seconds=1), False)
        bench.kube.put(KIND, asked(later.word))
        await bench.answer()
    assert bench.acts == [(STICK, True), (STICK, False)]
    async with bench.agent():  # after a restart
        bench.kube.put(KIND, asked(make(NOW + timedelta(seconds=2), False).word))
        await bench.answer()
    assert len(bench.acts) == 3


async def test_a_refusal_is_answered_with_its_reason(tmp_path: Path) -> None:
    bench, request = Bench(tmp_path), make(NOW, False)
    bench.error = DeviceBusy(STICK, "claim lab/c")
    bench.kube.put(KIND, asked(request.word))
    async with bench.agent():
        assert await bench.answer() == (
            "Warning",
            "Busy",
            f"not reset: device {STICK} is in use by claim lab/c [{request.token}]",
        )


async def test_an_agent_that_ended_meanwhile_does_not_do_it_again(tmp_path: Path) -> None:
    bench, request = Bench(tmp_path), make(NOW, False)
    bench.hold.clear()
    bench.kube.put(KIND, asked(request.word))
    async with bench.agent():
        await until(lambda: bench.acts)
    bench.hold.set()
    async with bench.agent():
        kind, reason, note = await bench.answer()
        assert (kind, reason) == ("Warning", "Interrupted")
        assert note.startswith("the agent of node node-a ended while it reset the device; ask")
    assert len(bench.acts) == 1


async def test_what_is_old_wrong_or_another_nodes_is_left_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    old = make(NOW - timedelta(hours=1), False)
    bench.kube.put(KIND, asked(old.word, name="old"))
    bench.kube.put(KIND, asked("now", name="wrong"))
    bench.kube.put(KIND, asked(make(NOW, False).word, node="node-b", name="elsewhere"))
    async with bench.agent():
        bench.kube.put(KIND, asked(make(NOW, False).word))
        await bench.answer()
    assert bench.acts == [(STICK, False)]


async def test_without_a_record_nothing_is_reset(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    (tmp_path / "resets").write_text("no directory")
    bench.kube.put(KIND, asked(make(NOW, False).word))
    async with bench.agent():
        kind, reason, _ = await bench.answer()
    assert (kind, reason, bench.acts) == ("Warning", "StateError", [])


async def test_records_of_old_requests_are_forgotten_at_a_start(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    store = RecordStore(tmp_path / "resets", ResetSchema())
    old, new = make(NOW - timedelta(hours=1), False), make(NOW, False)
    store.save("old", ResetRecord(old.token, done=True))
    store.save("new", ResetRecord(new.token, done=True))
    (tmp_path / "resets/bad.json").write_text("{}")
    bench.kube.put(KIND, asked(make(NOW, True).word))
    async with bench.agent():
        await bench.answer()
    left = sorted(path.name for path in (tmp_path / "resets").iterdir())
    assert left == ["bad.json.bad-1", "new.json", f"{STICK}.json"]


@pytest.mark.parametrize("token", ["now", "2026-01-31T12:00:00"])
def test_a_record_without_a_time_is_none(token: str) -> None:
    with pytest.raises(ValueError, match=r"Invalid isoformat|without its zone"):
        ResetSchema().decode(1, {"token": token, "done": True})
