# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.searching import examples
from usbdra.errors import StateError
from usbdra.state.exports import ExportPhase, ExportRecord, ExportSchema, Session
from usbdra.state.store import RecordStore
from usbdra.types import BusId

RECORD = ExportRecord(
    BusId("1-3"),
    "0781:5581:4131",
    ExportPhase.BOUND,
    {"1-3:1.0": "usb-storage"},
    pinned=True,
    session=Session("k", "claim team/cam of node-b"),
)


@pytest.fixture
def store(tmp_path: Path) -> RecordStore[ExportRecord]:
    return RecordStore(tmp_path / "exports", ExportSchema())


def test_round_trip_with_private_modes(store: RecordStore[ExportRecord], tmp_path: Path) -> None:
    assert store.load("1-3") is None
    store.save("1-3", RECORD)
    assert store.load("1-3") == RECORD
    assert store.load_all() == ({"1-3": RECORD}, [])
    assert (tmp_path / "exports").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "exports/1-3.json").stat().st_mode & 0o777 == 0o600
    store.delete("1-3")
    store.delete("1-3")
    assert store.load_all() == ({}, [])


def test_r42_what_another_process_writes_is_seen_and_the_rest_is_decoded_once(
    store: RecordStore[ExportRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []
    decode = ExportSchema.decode

    def counted(self: ExportSchema, version: int, data: dict[str, object]) -> ExportRecord:
        decoded.append(version)
        return decode(self, version, data)

    monkeypatch.setattr(ExportSchema, "decode", counted)
    other = RecordStore(tmp_path / "exports", ExportSchema())
    other.save("1-3", RECORD)
    for _ in range(3):
        assert store.load("1-3") == RECORD
    assert decoded == [1]
    for key in ("x", "y", "z"):  # of the same size, one right after the other
        theirs = replace(RECORD, session=Session(key, "claim team/cam of node-b"))
        other.save("1-3", theirs)
        assert store.load("1-3") == theirs
    other.delete("1-3")
    assert store.load("1-3") is None


def test_the_file_on_disk(store: RecordStore[ExportRecord], tmp_path: Path) -> None:
    store.save("1-3", RECORD)
    document = json.loads((tmp_path / "exports/1-3.json").read_text())
    assert (document["kind"], document["version"]) == ("usbdra/export", 1)
    assert document["data"]["drivers"] == {"1-3:1.0": "usb-storage"}
    assert document["checksum"].startswith("sha256:")


def mangle(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 2}, "has version 2"),
        ({"version": "1"}, "has version '1'"),
        ({"kind": "usbdra/claim"}, "not of the kind"),
        ({"checksum": "sha256:00"}, "checksum"),
        ({"data": []}, "checksum"),
    ],
)
def test_what_cannot_be_used_is_set_aside_and_never_overwritten(
    store: RecordStore[ExportRecord], tmp_path: Path, change: dict[str, object], reason: str
) -> None:
    store.save("1-3", RECORD)
    path = tmp_path / "exports/1-3.json"
    mangle(path, **change)
    bad = path.read_bytes()
    with pytest.raises(StateError, match=reason) as caught:
        store.load("1-3")
    kept = tmp_path / "exports/1-3.json.bad-1"
    assert str(kept) in str(caught.value)
    assert kept.read_bytes() == bad
    assert store.load("1-3") is None
    store.save("1-3", RECORD)
    path.write_text("{")
    _, aside = store.load_all()
    assert [(one.name, one.path.name) for one in aside] == [("1-3", "1-3.json.bad-2")]
    assert kept.read_bytes() == bad


def test_a_field_of_the_wrong_type_is_named(
    store: RecordStore[ExportRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ExportSchema, "encode", lambda self, record: {"busid": 3}, raising=True)
    store.save("1-3", RECORD)
    with pytest.raises(StateError, match="busid"):
        store.load("1-3")


@settings(max_examples=examples(100))
@given(raw=st.binary(max_size=300))
def test_any_bytes_are_set_aside_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes
) -> None:
    directory = tmp_path_factory.mktemp("records")
    (directory / "x.json").write_bytes(raw)
    records, aside = RecordStore(directory, ExportSchema()).load_all()
    assert records == {}
    assert aside[0].path.read_bytes() == raw


def test_r45_no_space_leaves_the_old_record_and_no_litter(
    store: RecordStore[ExportRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save("1-3", RECORD)

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StateError, match="No space left"):
            store.save("1-3", ExportRecord(BusId("1-3"), "x", ExportPhase.BINDING, {}))
    assert store.load("1-3") == RECORD
    assert sorted(os.listdir(tmp_path / "exports")) == ["1-3.json"]


def test_litter_of_writers_that_died_is_removed(
    store: RecordStore[ExportRecord], tmp_path: Path
) -> None:
    store.save("1-3", RECORD)
    (tmp_path / "exports/.1-4.json.77.tmp").write_text("half")
    (tmp_path / "exports/.1-3.lock").write_text("")
    assert store.load_all() == ({"1-3": RECORD}, [])
    assert sorted(os.listdir(tmp_path / "exports")) == [".1-3.lock", "1-3.json"]


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 201, "a\n"])
def test_names_cannot_leave_the_directory(store: RecordStore[ExportRecord], name: str) -> None:
    with pytest.raises(StateError, match="cannot name a record"):
        store.save(name, RECORD)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = RecordStore(tmp_path / "file/exports", ExportSchema())
    with pytest.raises(StateError, match="cannot be written"):
        store.save("1-3", RECORD)
    with pytest.raises(StateError, match="cannot be read"):
        store.load_all()
