# SPDX-License-Identifier: Apache-2.0
"""Records: what is on disk when, and who has a device."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from usbdra.errors import DeviceBusy, StateError
from usbdra.plugin.records import Records
from usbdra.state.claims import ClaimRecord, ClaimRef, ClaimSchema, Phase, Route
from usbdra.state.store import RecordStore
from usbdra.types import ClaimUid, NodeName

from .records import UID, device, record

OTHER = ClaimRef("lab", "other", ClaimUid("uid-2"))


class SlowStore(RecordStore[ClaimRecord]):
    """A store whose disk waits for `go` and may refuse."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, ClaimSchema())
        self.go = threading.Event()
        self.go.set()
        self.error: StateError | None = None
        self.log: list[str] = []

    def save(self, name: str, record: ClaimRecord) -> None:
        assert self.go.wait(2)
        if self.error:
            raise self.error
        super().save(name, record)
        self.log.append(f"save {record.phase.value}")

    def delete(self, name: str) -> None:
        super().delete(name)
        self.log.append("delete")


@pytest.fixture
def store(tmp_path: Path) -> SlowStore:
    return SlowStore(tmp_path)


async def test_what_is_put_is_there_for_the_next_agent(store: SlowStore) -> None:
    first, second = Records(store), Records(store)
    first.add(record())
    await second.load()
    assert second.all() == {}  # nothing exists of it yet
    assert not first.on_disk(UID)
    changed = replace(record(), phase=Phase.RELEASING)
    await first.put(changed)
    await second.load()
    assert second.all() == {UID: changed}
    assert first.on_disk(UID)
    assert second.on_disk(UID)
    await second.drop(UID)
    await first.load()
    assert first.get(UID) is None
    assert not first.on_disk(UID)
    assert not second.on_disk(UID)


async def test_a_refusing_disk_changes_nothing(store: SlowStore) -> None:
    records = Records(store)
    records.add(record())
    store.error = StateError("No space left on device")
    with pytest.raises(StateError):
        await records.put(replace(record(), phase=Phase.RELEASING))
    assert records.get(UID) == record()


def test_r47_of_two_that_come_together_one_gets_the_device(store: SlowStore) -> None:
    records = Records(store)
    records.add(record())
    with pytest.raises(DeviceBusy, match=r"claim lab/stick \(uid-1\)"):
        records.add(record(ref=OTHER))
    assert list(records.all()) == [UID]


def test_same_name_on_another_node_and_looking_are_no_conflict(store: SlowStore) -> None:
    records = Records(store)
    records.add(record())
    records.add(record(device(node=NodeName("c")), ref=OTHER))
    looking = device(route=Route.OBSERVE, held=None)
    records.add(record(looking, ref=replace(OTHER, uid=ClaimUid("uid-3"))))
    assert len(records.all()) == 3


async def test_a_cancelled_write_is_never_overtaken(store: SlowStore) -> None:
    records = Records(store)
    store.go.clear()
    writing = asyncio.create_task(records.put(record()))
    await asyncio.sleep(0)
    writing.cancel()
    asyncio.get_running_loop().call_later(0.01, store.go.set)
    with pytest.raises(asyncio.CancelledError):
        await writing
    await records.drop(UID)
    assert store.log == ["save prepared", "delete"]
    await records.load()
    assert records.all() == {}
