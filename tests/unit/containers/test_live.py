# SPDX-License-Identifier: Apache-2.0
"""Devices of running containers: found by what is mounted, given and taken, nobody else's touched.

Device nodes are real, so these tests run as root; a container's /dev is a tmpfs of its own.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

from tests.fakes.bpf import FakeBpf
from tests.fakes.procfs import FakeProc, pod_cgroup
from tests.oracle import ebpf
from usbdra.containers.live import Gone, LiveContainers, Wanted
from usbdra.containers.nodes import Node
from usbdra.containers.processes import Processes
from usbdra.containers.rules import DeviceNumber
from usbdra.errors import KernelUnsupported, NotFound, Refused
from usbdra.types import ClaimUid

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")
POD = "0b1e6c5a-93b2-4b5e-8f0e-3f1c2d4e5f60"
NAMES = ("4f" * 32, "5a" * 32)
CLAIM, OTHER = ClaimUid("claim-1"), ClaimUid("claim-2")
OLD, NEW = DeviceNumber(189, 130), DeviceNumber(189, 131)
OLD_PATH, NEW_PATH = PurePosixPath("/dev/bus/usb/002/003"), PurePosixPath("/dev/bus/usb/002/004")
NODE = Node(NEW_PATH, NEW, 0o660)
MOUNTINFO = "2 1 0:6 / /dev rw - devtmpfs udev rw\n"


def mounted(claim: str, request: str) -> str:
    return f"9 8 0:6 /usbdra/{claim}/links/{request} /dev/usbdra/{request} ro - devtmpfs udev rw\n"


@dataclass
class Host:
    """A node with two containers: the first has request `usb` of CLAIM, the second of OTHER."""

    proc: FakeProc
    bpf: FakeBpf
    live: LiveContainers
    top: Path

    def root(self, number: int) -> Path:
        return self.top / f"root{number}"

    def cgroup(self, number: int) -> Path:
        return self.proc.cgroups / pod_cgroup(POD, NAMES[number]).lstrip("/")

    def may(self, number: int, what: DeviceNumber) -> bool:
        return self.bpf.may(self.cgroup(number), ebpf.CHARACTER, what.major, what.minor, 6)

    def node(self, number: int, path: PurePosixPath) -> os.stat_result:
        return (self.root(number) / str(path).lstrip("/")).lstat()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    proc, bpf = FakeProc(tmp_path), FakeBpf()
    (tmp_path / "mountinfo").write_text(MOUNTINFO)
    live = LiveContainers(
        Processes(proc.path),
        cgroups=proc.cgroups,
        dev=Path("/proc"),  # any other file system than the containers'
        mountinfo=tmp_path / "mountinfo",
        bpf=bpf,
    )
    found = Host(proc, bpf, live, tmp_path)
    original = ebpf.runc([*ebpf.USUAL, (ebpf.CHARACTER, 6, OLD.major, OLD.minor, True)])
    for number, claim in enumerate((CLAIM, OTHER)):
        old = found.root(number) / str(OLD_PATH).lstrip("/")
        old.parent.mkdir(parents=True)
        os.mknod(old, stat.S_IFCHR | 0o600, os.makedev(OLD.major, OLD.minor))
        proc.process(
            100 + number,
            pod_cgroup(POD, NAMES[number]),
            root=found.root(number),
            mountinfo=mounted(claim, "usb"),
            uid=1000,
        )
        bpf.install(found.cgroup(number), original)
    yield found
    assert not os.path.exists("/.usbdra.new")


def test_r60_what_was_lost_is_out_of_reach_of_that_claim_alone(host: Host) -> None:
    lost = Wanted(gone=(Gone(OLD_PATH, OLD),))
    assert host.live.update_claim(CLAIM, {"usb": lost}) == []
    assert not host.may(0, OLD)
    assert host.may(1, OLD)
    assert not (host.root(0) / "dev/bus/usb/002/003").exists()
    assert (host.root(1) / "dev/bus/usb/002/003").exists()
    assert host.live.update_claim(CLAIM, {"usb": lost}) == []


def test_a_number_that_another_claim_has_now_stays_where_that_is(host: Host) -> None:
    """Both in one container: the first lost a number that the kernel gave the second's device."""
    host.proc.process(
        100,
        pod_cgroup(POD, NAMES[0]),
        root=host.root(0),
        mountinfo=mounted(CLAIM, "usb") + mounted(OTHER, "usb"),
    )
    lost = Wanted(gone=(Gone(OLD_PATH, OLD, holder=OTHER),))
    assert host.live.update_claim(CLAIM, {"usb": lost}) == []
    assert host.may(0, OLD)
    assert (host.root(0) / "dev/bus/usb/002/003").exists()
    elsewhere = Wanted(gone=(Gone(OLD_PATH, OLD, holder=ClaimUid("claim-3")),))
    assert host.live.update_claim(CLAIM, {"usb": elsewhere}) == []
    assert not host.may(0, OLD)


def test_what_came_back_is_given_under_its_new_number(host: Host) -> None:
    wanted = Wanted((NODE,), (Gone(OLD_PATH, OLD),))
    for _ in range(2):
        assert host.live.update_claim(CLAIM, {"usb": wanted}) == []
    assert (host.may(0, NEW), host.may(0, OLD)) == (True, False)
    assert not host.may(1, NEW)
    facts = host.node(0, NEW_PATH)
    assert stat.S_ISCHR(facts.st_mode)
    assert facts.st_rdev == os.makedev(NEW.major, NEW.minor)
    assert stat.S_IMODE(facts.st_mode) == 0o660
    assert (facts.st_uid, facts.st_gid) == (1000, 1001)  # its first process' own
    assert host.bpf.loads == 1


def test_owner_and_mode_as_configured_and_a_block_device(host: Host) -> None:
    path = PurePosixPath("/dev/sdb")
    disk = Node(path, DeviceNumber(8, 16, block=True), 0o640, 7, 8)
    assert host.live.update_claim(CLAIM, {"usb": Wanted((disk,))}) == []
    facts = host.node(0, path)
    assert stat.S_ISBLK(facts.st_mode)
    assert (facts.st_uid, facts.st_gid, stat.S_IMODE(facts.st_mode)) == (7, 8, 0o640)


def test_a_path_with_another_number_gets_the_new_one(host: Host) -> None:
    again = Node(OLD_PATH, NEW, 0o600)
    assert host.live.update_claim(CLAIM, {"usb": Wanted((again,), (Gone(OLD_PATH, OLD),))}) == []
    assert host.node(0, OLD_PATH).st_rdev == os.makedev(NEW.major, NEW.minor)


def test_a_number_that_is_given_is_not_taken_too(host: Host) -> None:
    moved = Node(NEW_PATH, OLD, 0o600)
    assert host.live.update_claim(CLAIM, {"usb": Wanted((moved,), (Gone(OLD_PATH, OLD),))}) == []
    assert host.may(0, OLD)


def test_a_request_that_a_container_does_not_have_does_not_reach_it(host: Host) -> None:
    assert host.live.update_claim(CLAIM, {"other": Wanted((NODE,))}) == []
    assert not host.may(0, NEW)


def test_links_lead_nowhere_outside(host: Host, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    bus = host.root(0) / "dev/bus"
    bus.rename(tmp_path / "away")
    bus.symlink_to(outside)
    (problem,) = host.live.update_claim(CLAIM, {"usb": Wanted((NODE,))})
    assert isinstance(problem.error, Refused)
    assert "bus on the way to /dev/bus/usb/002/004 is no directory" in str(problem.error)
    assert list(outside.iterdir()) == []


def test_a_dev_that_is_a_link_is_not_entered(host: Host, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (host.root(0) / "dev").rename(tmp_path / "away")
    (host.root(0) / "dev").symlink_to(tmp_path / "outside")
    (problem,) = host.live.update_claim(CLAIM, {"usb": Wanted((NODE,))})
    assert isinstance(problem.error, KernelUnsupported)
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_file_in_the_way_stays(host: Host) -> None:
    (host.root(0) / "dev/bus/usb/002/004").write_text("mine")
    (problem,) = host.live.update_claim(CLAIM, {"usb": Wanted((NODE,))})
    assert "/dev/bus/usb/002/004 is there already, and no device node" in str(problem.error)
    assert (host.root(0) / "dev/bus/usb/002/004").read_text() == "mine"


def test_a_container_that_has_the_nodes_own_dev_needs_no_node(host: Host, tmp_path: Path) -> None:
    shared = LiveContainers(
        Processes(host.proc.path),
        cgroups=host.proc.cgroups,
        dev=host.root(0) / "dev",
        mountinfo=tmp_path / "mountinfo",
        bpf=host.bpf,
    )
    assert shared.update_claim(CLAIM, {"usb": Wanted((NODE,))}) == []
    assert host.may(0, NEW)
    assert not (host.root(0) / "dev/bus/usb/002/004").exists()


def test_a_container_with_users_of_its_own_is_told_of(host: Host) -> None:
    host.proc.process(
        100,
        pod_cgroup(POD, NAMES[0]),
        mountinfo=mounted(CLAIM, "usb"),
        users="         0     100000      65536\n",
    )
    (problem,) = host.live.update_claim(CLAIM, {"usb": Wanted((NODE,))})
    assert "users of its own (hostUsers: false)" in str(problem.error)
    assert problem.container.pod == POD


def test_one_container_that_cannot_be_changed_keeps_no_other_from_it(host: Host) -> None:
    host.proc.process(101, pod_cgroup(POD, NAMES[1]), mountinfo=mounted(CLAIM, "usb"))
    host.bpf.attached.pop(str(host.cgroup(0)))
    (problem,) = host.live.update_claim(CLAIM, {"usb": Wanted((NODE,))})
    assert "has no device program" in str(problem.error)
    assert host.may(1, NEW)


def test_named_container_with_links_and_back(host: Host) -> None:
    directory = PurePosixPath("/dev/usbdra/stick")
    links = {directory / "device": NEW_PATH}
    host.live.update(POD, NAMES[1], Wanted((NODE,), links=links))
    assert os.readlink(host.root(1) / "dev/usbdra/stick/device") == str(NEW_PATH)
    assert host.may(1, NEW)
    gone = Wanted(gone=(Gone(NEW_PATH, NEW),), without=directory)
    for _ in range(2):
        host.live.update(POD, NAMES[1], gone)
    assert not host.may(1, NEW)
    assert not (host.root(1) / "dev/usbdra/stick").exists()
    assert not (host.root(1) / "dev/bus/usb/002/004").exists()
    with pytest.raises(NotFound, match="does not run on this node"):
        host.live.update(POD, "00" * 32, gone)


def test_containers_of_a_request_are_ended_by_the_kernel_and_no_others(host: Host) -> None:
    for number in (0, 1):
        (host.cgroup(number) / "cgroup.kill").touch()
    assert host.live.restart_claim(CLAIM, {"usb"}) == []
    assert (host.cgroup(0) / "cgroup.kill").read_text() == "1"
    assert (host.cgroup(1) / "cgroup.kill").read_text() == ""
    assert host.live.restart_claim(OTHER, {"else"}) == []
    assert (host.cgroup(1) / "cgroup.kill").read_text() == ""


def test_a_container_that_cannot_be_ended_is_told_of(host: Host) -> None:
    (problem,) = host.live.restart_claim(CLAIM, {"usb"})
    assert "older than 5.14" in str(problem.error)
    (host.cgroup(0) / "cgroup.kill").mkdir()
    (problem,) = host.live.restart_claim(CLAIM, {"usb"})
    assert "cgroup.kill: Is a directory" in str(problem.error)


def test_the_first_process_counts_and_not_who_came_later(host: Host, tmp_path: Path) -> None:
    (tmp_path / "fake").mkdir()
    later = f"{pod_cgroup(POD, NAMES[0])}/init.scope"
    host.proc.process(
        50, later, root=tmp_path / "fake", started=500, mountinfo=mounted(OTHER, "usb")
    )
    assert host.live.update_claim(CLAIM, {"usb": Wanted((NODE,))}) == []
    assert host.may(0, NEW)
    assert not (tmp_path / "fake/dev").exists()


def test_processes_that_go_and_files_that_are_not_there(host: Host) -> None:
    (host.proc.path / "7").mkdir()
    host.proc.process(8, pod_cgroup(POD, "77" * 32))
    (host.proc.path / "8/stat").unlink()
    host.proc.process(9, "/system.slice/sshd.service")
    assert host.live.update_claim(CLAIM, {"usb": Wanted((NODE,))}) == []


def test_an_agent_that_cannot_see_where_containers_are_says_so(host: Host) -> None:
    host.proc.process(12, "/")
    (host.proc.path / "12/cgroup").write_text("0::/../../kubepods/x\n")
    with pytest.raises(KernelUnsupported, match="a cgroup namespace of its own"):
        host.live.update_claim(CLAIM, {"usb": Wanted((NODE,))})


def test_without_a_place_of_claims_nothing_is_known(host: Host, tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text("")
    with pytest.raises(KernelUnsupported, match="no file system is known for /dev/usbdra"):
        host.live.update_claim(CLAIM, {"usb": Wanted((NODE,))})
