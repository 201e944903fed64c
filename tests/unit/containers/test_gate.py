# SPDX-License-Identifier: Apache-2.0
"""Swapping device programs in place, on a kernel in memory."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.fakes.bpf import FakeBpf
from tests.oracle import ebpf
from usbdra.containers import gate
from usbdra.containers.gate import Change
from usbdra.containers.rules import READ_WRITE, DeviceNumber
from usbdra.errors import KernelUnsupported, NotFound, NotPermitted

ORIGINAL = ebpf.runc(ebpf.USUAL)
STICK, NEXT = DeviceNumber(189, 130), DeviceNumber(189, 131)
NULL = DeviceNumber(1, 3)


@pytest.fixture
def bpf() -> FakeBpf:
    return FakeBpf()


@pytest.fixture
def cgroup(tmp_path: Path, bpf: FakeBpf) -> Path:
    bpf.install(tmp_path, ORIGINAL)
    return tmp_path


def may(bpf: FakeBpf, cgroup: Path, number: DeviceNumber, access: int = READ_WRITE) -> bool:
    return bpf.may(cgroup, ebpf.CHARACTER, number.major, number.minor, access)


def test_given_once_and_the_same_again_is_nothing(bpf: FakeBpf, cgroup: Path) -> None:
    change = Change({STICK: READ_WRITE})
    assert gate.change([cgroup], change, bpf=bpf)
    assert may(bpf, cgroup, STICK)
    assert not may(bpf, cgroup, NEXT)
    assert not gate.change([cgroup], change, bpf=bpf)
    assert bpf.loads == 1


def test_another_agent_finds_the_original_and_nothing_piles_up(bpf: FakeBpf, cgroup: Path) -> None:
    sizes = set()
    for minor in range(130, 140):
        now, before = DeviceNumber(189, minor), DeviceNumber(189, minor - 1)
        gate.change([cgroup], Change({now: READ_WRITE}, [before]), bpf=bpf)
        sizes.add(len(bpf.program(cgroup)))
        assert may(bpf, cgroup, now)
        assert not may(bpf, cgroup, before)
    assert len(sizes) == 1
    gate.change([cgroup], Change({}, [DeviceNumber(189, 139)]), bpf=bpf)
    assert bpf.program(cgroup) == ORIGINAL


def test_r60_what_the_runtime_allowed_is_denied_and_given_again(bpf: FakeBpf, cgroup: Path) -> None:
    gate.change([cgroup], Change({}, [NULL]), bpf=bpf)
    assert not may(bpf, cgroup, NULL)
    assert not may(bpf, cgroup, NULL, ebpf.MKNOD)
    gate.change([cgroup], Change({NULL: READ_WRITE}), bpf=bpf)
    assert bpf.program(cgroup) == ORIGINAL


def test_r62_a_runtime_that_puts_its_own_program_back_is_followed(
    bpf: FakeBpf, cgroup: Path
) -> None:
    gate.change([cgroup], Change({STICK: READ_WRITE}), bpf=bpf)
    resized = ebpf.runc([*ebpf.USUAL, (ebpf.CHARACTER, 7, 10, 200, True)])
    bpf.install(cgroup, resized)
    gate.change([cgroup], Change({STICK: READ_WRITE}), bpf=bpf)
    assert may(bpf, cgroup, STICK)
    assert may(bpf, cgroup, DeviceNumber(10, 200))
    assert bpf.program(cgroup).endswith(resized)


def test_a_program_replaced_between_look_and_swap_is_looked_at_again(
    bpf: FakeBpf, cgroup: Path
) -> None:
    newer = ebpf.runc([(ebpf.CHARACTER, 7, 10, 200, True)])
    bpf.before_attach = lambda: bpf.install(cgroup, newer)
    assert gate.change([cgroup], Change({STICK: READ_WRITE}), bpf=bpf)
    assert bpf.program(cgroup).endswith(newer)
    assert may(bpf, cgroup, STICK)


def test_one_that_is_replaced_all_the_time_is_given_up(bpf: FakeBpf, cgroup: Path) -> None:
    def again() -> None:
        bpf.install(cgroup, ORIGINAL)
        bpf.before_attach = again

    bpf.before_attach = again
    with pytest.raises(KernelUnsupported, match="does not stay the same"):
        gate.change([cgroup], Change({STICK: READ_WRITE}), bpf=bpf)


def test_a_program_without_neighbours_by_its_flags(bpf: FakeBpf, cgroup: Path) -> None:
    bpf.flags = 0
    gate.change([cgroup], Change({STICK: READ_WRITE}), bpf=bpf)
    assert may(bpf, cgroup, STICK)


def test_r62_several_programs_may_be_narrowed_and_not_widened(bpf: FakeBpf, cgroup: Path) -> None:
    """After `systemctl daemon-reload` there may be systemd's own beside the runtime's."""
    everything = ebpf.runc([(None, 7, None, None, True)])
    bpf.install(cgroup, everything, ORIGINAL)
    with pytest.raises(KernelUnsupported, match="beside its runtime's denies"):
        gate.change([cgroup], Change({STICK: READ_WRITE}), bpf=bpf)
    gate.change([cgroup], Change({}, [NULL]), bpf=bpf)
    assert not may(bpf, cgroup, NULL)


@pytest.mark.parametrize("place", [0, 1])
def test_one_that_systemd_made_of_the_same_device_is_no_obstacle(
    bpf: FakeBpf, cgroup: Path, place: int
) -> None:
    """Wherever it is among them, the runtime's goes on being the changed one."""
    gate.change([cgroup], Change({STICK: READ_WRITE}), bpf=bpf)
    changed, told = bpf.program(cgroup), ebpf.runc([(None, 7, None, None, True)])
    programs = [changed]
    programs.insert(place, told)
    bpf.install(cgroup, *programs)
    assert not gate.change([cgroup], Change({STICK: READ_WRITE}), bpf=bpf)
    gate.change([cgroup], Change({}, [STICK]), bpf=bpf)
    assert not may(bpf, cgroup, STICK)
    programs[1 - place] = ORIGINAL
    assert [bpf.programs[number] for number in bpf.attached[str(cgroup)]] == programs


def test_no_program_no_version_2_no_right_and_no_cgroup(bpf: FakeBpf, cgroup: Path) -> None:
    change = Change({STICK: READ_WRITE})
    bpf.attached.clear()
    with pytest.raises(KernelUnsupported, match="has no device program"):
        gate.change([cgroup], change, bpf=bpf)
    bpf.error = OSError(errno.EBADF, "device_programs on fd 3: Bad file descriptor")
    with pytest.raises(KernelUnsupported, match="is no cgroup of version 2"):
        gate.change([cgroup], change, bpf=bpf)
    bpf.error = PermissionError(errno.EPERM, "device_programs on fd 3: Operation not permitted")
    with pytest.raises(NotPermitted, match="run privileged"):
        gate.change([cgroup], change, bpf=bpf)
    bpf.error = OSError(errno.EINVAL, "device_programs on fd 3: Invalid argument")
    with pytest.raises(KernelUnsupported, match="Invalid argument"):
        gate.change([cgroup], change, bpf=bpf)
    with pytest.raises(NotFound, match="is gone"):
        gate.change([cgroup / "none"], change, bpf=bpf)
    (cgroup / "file").touch()
    with pytest.raises(KernelUnsupported, match="Not a directory"):
        gate.change([cgroup / "file"], change, bpf=bpf)


def test_all_programs_on_the_way_must_agree(bpf: FakeBpf, cgroup: Path) -> None:
    inner = cgroup / "container"
    inner.mkdir()
    both = [cgroup, inner]
    gate.change(both, Change({STICK: READ_WRITE}), bpf=bpf)
    assert may(bpf, cgroup, STICK)
    bpf.install(inner, ORIGINAL)
    gate.change(both, Change({STICK: READ_WRITE}), bpf=bpf)
    assert may(bpf, inner, STICK)
