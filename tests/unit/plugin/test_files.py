# SPDX-License-Identifier: Apache-2.0
"""A claim's files: written whole, changed in place, removed, told apart from others'."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from usbdra.errors import AttachFailed, StateError
from usbdra.plugin.files import ClaimFiles, check_node
from usbdra.plugin.layout import NodeLink
from usbdra.types import ClaimUid

from .claims import DRIVER
from .records import REF, TTY, UID, device, held, record


def accept(link: NodeLink) -> None:
    """Stand-in for the check of real device nodes."""


@pytest.fixture
def claim_files(tmp_path: Path) -> ClaimFiles:
    return ClaimFiles(DRIVER, tmp_path / "cdi", tmp_path / "claims", accept)


def spec_path(tmp_path: Path) -> Path:
    return tmp_path / "cdi" / f"{DRIVER}_claim_uid-1.json"


def tree(root: Path) -> list[str]:
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir())


def test_write_and_remove(claim_files: ClaimFiles, tmp_path: Path) -> None:
    one = record(device(held=held(children=(TTY,))))
    claim_files.write(one)
    assert tree(tmp_path) == [
        f"cdi/{DRIVER}_claim_uid-1.json",
        "claims/uid-1/links/usb/device",
        "claims/uid-1/links/usb/tty0",
        "claims/uid-1/metadata/usb.json",
    ]
    assert os.readlink(tmp_path / "claims/uid-1/links/usb/tty0") == "/dev/ttyACM3"
    assert spec_path(tmp_path).stat().st_mode & 0o777 == 0o644
    spec = json.loads(spec_path(tmp_path).read_text())
    mounts = spec["devices"][0]["containerEdits"]["mounts"]
    assert mounts[0]["hostPath"] == str(tmp_path / "claims/uid-1/links/usb")
    assert claim_files.is_written(one)
    assert claim_files.claims() == {UID: one}
    claim_files.remove(UID)
    claim_files.remove(UID)
    assert tree(tmp_path) == []
    assert claim_files.claims() == {}


def test_new_numbers_appear_in_the_same_directory(claim_files: ClaimFiles, tmp_path: Path) -> None:
    """Running containers have the directory mounted: it must stay the same directory."""
    claim_files.write(record(device(held=held(children=(TTY,)))))
    directory = tmp_path / "claims/uid-1/links/usb"
    inode = directory.stat().st_ino
    later = record(device(held=held(devnum=3)))
    assert not claim_files.is_written(later)
    claim_files.write(later)
    assert directory.stat().st_ino == inode
    assert os.listdir(directory) == ["device"]
    assert os.readlink(directory / "device") == "/dev/bus/usb/005/003"
    assert claim_files.is_written(later)


def test_several_devices_have_directories_of_their_own(
    claim_files: ClaimFiles, tmp_path: Path
) -> None:
    claim_files.write(record(device(slots=2), device(slot=1, slots=2, held=held(devnum=3))))
    links = tmp_path / "claims/uid-1/links/usb"
    assert os.readlink(links / "0/device") == "/dev/bus/usb/005/002"
    assert os.readlink(links / "1/device") == "/dev/bus/usb/005/003"


def test_r61_leftovers_are_found_and_strangers_left_out(
    claim_files: ClaimFiles, tmp_path: Path
) -> None:
    claim_files.write(record())
    (tmp_path / "cdi" / "nvidia.json").write_text("{}")
    (tmp_path / "cdi" / f".{DRIVER}_claim_old.json.new").write_text("{")
    (tmp_path / "claims" / "only-a-directory").mkdir()
    assert claim_files.claims() == {UID: record(), "only-a-directory": None}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"annotations": {}}', "[" * 9999])
def test_r51_specs_that_cannot_be_understood_are_still_listed(
    claim_files: ClaimFiles, tmp_path: Path, text: str
) -> None:
    claim_files.write(record())
    spec_path(tmp_path).write_text(text)
    assert claim_files.claims() == {UID: None}


def test_a_spec_under_another_claims_name_proves_nothing(
    claim_files: ClaimFiles, tmp_path: Path
) -> None:
    claim_files.write(record())
    spec_path(tmp_path).rename(tmp_path / "cdi" / f"{DRIVER}_claim_uid-2.json")
    assert claim_files.claims() == {"uid-1": None, "uid-2": None}


def test_r61_a_file_in_place_of_a_device_is_refused(tmp_path: Path) -> None:
    plain = tmp_path / "node"
    plain.write_text("")
    with pytest.raises(AttachFailed, match="node is not a character device node"):
        check_node(NodeLink("device", str(plain), 1, 3))
    with pytest.raises(AttachFailed, match=r"cannot be used: .*No such file"):
        check_node(NodeLink("device", str(tmp_path / "none"), 1, 3))
    with pytest.raises(AttachFailed, match="/dev/null is not a block device node"):
        check_node(NodeLink("device", "/dev/null", 1, 3, block=True))
    with pytest.raises(AttachFailed, match="has number 1:3, not 189:4"):
        check_node(NodeLink("device", "/dev/null", 189, 4))
    check_node(NodeLink("device", "/dev/null", 1, 3))


def test_r61_nothing_is_written_for_a_wrong_node(tmp_path: Path) -> None:
    claim_files = ClaimFiles(DRIVER, tmp_path / "cdi", tmp_path / "claims")
    with pytest.raises(AttachFailed):
        claim_files.write(record(device(held=held(devnum=127))))
    assert tree(tmp_path) == []


def test_r45_full_disk_leaves_no_half_file(
    claim_files: ClaimFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, text: str) -> int:
        with self.open("w") as file:
            file.write(text[:5])
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(StateError, match=r"files of claim lab/stick .*No space left"):
        claim_files.write(record())
    assert [name for name in tree(tmp_path) if "links" not in name] == []


@pytest.mark.parametrize("uid", ["", "../etc", "a/b", ".hidden", "x" * 64])
def test_uids_that_are_no_file_names(claim_files: ClaimFiles, uid: str) -> None:
    with pytest.raises(StateError, match="cannot name a file"):
        claim_files.remove(ClaimUid(uid))
    with pytest.raises(StateError, match="cannot name a file"):
        claim_files.write(replace(record(), ref=replace(REF, uid=ClaimUid(uid))))


def test_damaged_parameters_are_an_error_with_a_name(claim_files: ClaimFiles) -> None:
    damaged = record(replace(device(), config={"colour": 1}))
    with pytest.raises(StateError, match="config has an unknown field 'colour'"):
        claim_files.write(damaged)
    assert not claim_files.is_written(damaged)
