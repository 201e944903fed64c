# SPDX-License-Identifier: Apache-2.0
"""Devices of a running container on a real kernel: given, taken, and what an attacker gets.

Standard library and the product only, so that a node can run it without pytest, as root: `run()`
beside `ebpf.py` (tests/oracle). The container is a process with a cgroup, a device program as runc
loads it, a /dev of its own, a claim's directory mounted, and all capabilities; or what a runtime
of the node makes of the same.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from usbdra._native import bpf
from usbdra.containers.cgroups import OWN
from usbdra.containers.live import Gone, LiveContainers, Wanted
from usbdra.containers.nodes import Node
from usbdra.containers.processes import Processes
from usbdra.containers.rules import DeviceNumber
from usbdra.containers.scopes import Scopes
from usbdra.types import ClaimUid

try:
    import ebpf  # type: ignore[import-not-found, unused-ignore]
except ImportError:
    from tests.oracle import ebpf  # type: ignore[no-redef, unused-ignore]

POD, NAME = "0b1e6c5a-93b2-4b5e-8f0e-3f1c2d4e5f60", "4f" * 32
CLAIM = ClaimUid("bed-containers")
CLAIMS = Path("/dev/usbdra")
OLD, NEW, NEXT = DeviceNumber(4, 20), DeviceNumber(4, 21), DeviceNumber(4, 22)
"""Consoles: they open on every machine, and no runtime gives them to every container."""
OLD_PATH, NEW_PATH = PurePosixPath("/dev/bus/usb/001/008"), PurePosixPath("/dev/bus/usb/001/009")
RUNTIME = ebpf.runc([*ebpf.USUAL, (ebpf.CHARACTER, 6, OLD.major, OLD.minor, True)])
SYSTEMD = "systemd"
BUNDLE = Path("/run/bed/bundle")
CAPABILITIES = tuple(
    f"CAP_{name}" for name in ("DAC_OVERRIDE", "MKNOD", "SYSLOG", "SYS_ADMIN", "SYS_RAWIO")
)
LOOP = """
import json, os, sys
for line in sys.stdin:
    found = None
    try:
        exec(json.loads(line))
    except OSError as error:
        found = error.errno
    print(json.dumps(found), flush=True)
"""
KILLED = 128 + signal.SIGKILL
NEWNS, BIND, REC_PRIVATE = 0x20000, 0x1000, 0x44000


def hierarchy() -> Path:
    """Where cgroups of version 2 are mounted."""
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return next(Path(fields[1]) for fields in mounts if fields[2] == "cgroup2")


class Container:
    """What runs inside, asked from outside. process: LOOP, with its standard input and output."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert self.ask("pass") is None

    def ask(self, code: str) -> Any:
        """Run one statement inside; the errno it ended with, None when it went well."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(code) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def opens(self, path: PurePosixPath) -> bool:
        """Whether the device opens for reading and writing."""
        found = self.ask(f"os.close(os.open({str(path)!r}, os.O_RDWR))")
        assert found in (None, errno.EPERM, errno.ENOENT), found
        return found is None

    def makes(self, number: DeviceNumber) -> bool:
        """Whether an attacker's own node of this number opens (R60)."""
        path = PurePosixPath(f"/dev/own-{number.major}-{number.minor}")
        device = os.makedev(number.major, number.minor)
        self.ask(f"os.mknod({str(path)!r}, {stat.S_IFCHR | 0o666}, {device})")
        return self.opens(path)

    def end(self) -> int:
        """Its status, 128 and more for a signal as runtimes say it; again is no error."""
        with suppress(OSError):
            self._process.communicate()
        status = self._process.wait()
        return status if status >= 0 else 128 - status


def by_hand(cgroup: Path, links: Path) -> subprocess.Popen[str]:
    """A process as runc makes them, with its program."""
    cgroup.mkdir(parents=True)
    fd = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY)
    try:
        program = bpf.load(RUNTIME)
        bpf.attach(fd, program)
        os.close(program)
    finally:
        os.close(fd)
    return _started([sys.executable, "-c", LOOP], lambda: _be_container(cgroup, links))


def by_runtime(runtime: str, cgroup: Path, links: Path, driver: str) -> subprocess.Popen[str]:
    """The same made by a real runtime, of which the root file system is this machine's."""
    bundle, root = BUNDLE, BUNDLE / "root"
    root.mkdir(parents=True)
    subprocess.run(["mount", "--bind", "/", root], check=True)
    number = {"type": "c", "major": OLD.major, "minor": OLD.minor}
    every = ("bounding", "effective", "permitted")
    config = {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "cwd": "/",
            "env": ["PATH=/usr/bin:/bin"],
            "args": ["/usr/bin/python3", "-c", LOOP],
            "capabilities": {kind: list(CAPABILITIES) for kind in every},
        },
        "root": {"path": str(root)},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
            {"destination": "/dev/usbdra/usb", "source": str(links), "options": ["bind"]},
        ],
        "linux": {
            "cgroupsPath": _named(cgroup, driver),
            "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")],
            "devices": [{**number, "path": str(OLD_PATH), "fileMode": 0o600}],
            "resources": {
                "devices": [
                    {"allow": False, "access": "rwm"},
                    {"allow": True, "type": "c", "access": "m"},
                    {"allow": True, "access": "rwm", **number},
                ]
            },
        },
    }
    (bundle / "config.json").write_text(json.dumps(config))
    systemd = ["--systemd-cgroup"] if driver == SYSTEMD else []
    flags = [] if systemd or runtime != "crun" else ["--cgroup-manager=cgroupfs"]
    return _started([runtime, *systemd, *flags, "run", "--bundle", str(bundle), NAME])


def _named(cgroup: Path, driver: str) -> str:
    """The cgroup as a container's configuration has it: with systemd a slice, and what a scope's
    name is made of (runc, libcontainer/cgroups/systemd/common.go)."""
    if driver != SYSTEMD:
        return "/" + str(cgroup.relative_to(hierarchy()))
    return f"{cgroup.parent.name}:cri-containerd:{NAME}"


def cgroup_of(driver: str) -> Path:
    """Where the kubelet and containerd put a container of a Burstable pod."""
    if driver != SYSTEMD:
        return hierarchy() / f"kubepods/burstable/pod{POD}" / NAME
    above = f"kubepods-burstable-pod{POD.replace('-', '_')}.slice"
    slices = Path("kubepods.slice/kubepods-burstable.slice") / above
    return hierarchy() / slices / f"cri-containerd-{NAME}.scope"


def _started(words: list[str], first: Callable[[], None] | None = None) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    # A function before exec is unsafe beside threads; this program has one.
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, preexec_fn=first)  # noqa: PLW1509


def _be_container(cgroup: Path, links: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)

    def mount(source: str, target: str, kind: str | None, flags: int) -> None:
        words = [word.encode() if word else None for word in (source, target, kind)]
        if libc.mount(*words, flags, None):
            raise OSError(ctypes.get_errno(), f"mount {target}")

    (cgroup / "cgroup.procs").write_text(str(os.getpid()))
    if libc.unshare(NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    mount("none", "/", None, REC_PRIVATE)
    kept = os.open(links, os.O_PATH)
    mount("tmpfs", "/dev", "tmpfs", 0)
    os.makedirs("/dev/usbdra/usb")
    mount(f"/proc/self/fd/{kept}", "/dev/usbdra/usb", None, BIND)
    os.makedirs(OLD_PATH.parent)
    os.mknod(OLD_PATH, stat.S_IFCHR | 0o600, os.makedev(OLD.major, OLD.minor))


@contextmanager
def running(runtime: str, driver: str) -> Iterator[tuple[Container, Path]]:
    """A container and the cgroup that has its program, gone afterwards."""
    cgroup = cgroup_of(driver)
    links = CLAIMS / CLAIM / "links" / "usb"
    links.mkdir(parents=True)
    try:
        made = by_runtime(runtime, cgroup, links, driver) if runtime else by_hand(cgroup, links)
        container = Container(made)
        try:
            yield container, cgroup / OWN if (cgroup / OWN).exists() else cgroup
        finally:
            container.end()
    finally:
        _removed(cgroup)
        shutil.rmtree(CLAIMS / CLAIM)
        if BUNDLE.exists():
            subprocess.run(["umount", BUNDLE / "root"], check=True)
            shutil.rmtree(BUNDLE)


def _removed(cgroup: Path) -> None:
    """With what was made above it; a cgroup is free a moment after its last process."""
    for path in (cgroup, *cgroup.parents[:3]):
        for _ in range(100):
            try:
                path.rmdir()
            except OSError as error:
                if error.errno != errno.EBUSY:
                    break
                time.sleep(0.05)
            else:
                break


def program_of(cgroup: Path) -> bytes:
    """The runtime's, which is attached first; a second one may be systemd's."""
    fd = os.open(cgroup, os.O_RDONLY)
    try:
        ((number, *_), _) = bpf.device_programs(fd)
        program = bpf.open_program(number)
        text = bpf.instructions(program)[1]
        os.close(program)
        return text
    finally:
        os.close(fd)


def agent() -> LiveContainers:
    """As an agent has it that was just started."""
    proc = Path("/proc")
    return LiveContainers(
        Processes(proc), scopes=Scopes.of_host(proc), cgroups=hierarchy(), claims_dir=CLAIMS
    )


def resized(runtime: str, driver: str) -> None:
    """What comes of a pod that is resized in place, and of any package that is installed."""
    systemd = driver == SYSTEMD
    flags = ["--systemd-cgroup"] if systemd else []
    subprocess.run([runtime, *flags, "update", "--cpu-share=512", NAME], check=True)
    if systemd:
        subprocess.run(["systemctl", "daemon-reload"], check=True)


def run(runtime: str = "", driver: str = "cgroupfs") -> dict[str, float]:
    """All of it, with a container of this runtime or our own; milliseconds of one change to give
    and one to take."""
    live, other = agent(), agent()
    lost = Wanted(gone=(Gone(OLD_PATH, OLD),))
    back = Wanted((Node(NEW_PATH, NEW, 0o660),), (Gone(OLD_PATH, OLD),))
    times = {}
    with running(runtime, driver) as (container, cgroup):
        given = program_of(cgroup)
        assert runtime or given == RUNTIME, "the kernel shows another program than was loaded"
        assert container.opens(OLD_PATH)
        assert not container.makes(NEXT)

        start = time.monotonic()
        assert live.update_claim(CLAIM, {"usb": lost}) == []
        times["take_ms"] = (time.monotonic() - start) * 1000
        assert not container.opens(OLD_PATH)
        assert not container.makes(OLD), "R60: an own node of the lost number opens"

        start = time.monotonic()
        assert live.update_claim(CLAIM, {"usb": back}) == []
        times["give_ms"] = (time.monotonic() - start) * 1000
        assert container.opens(NEW_PATH)
        assert not container.makes(OLD)
        assert not container.makes(NEXT), "the neighbour of what was given opens"

        once = program_of(cgroup)
        if runtime:
            resized(runtime, driver)
            assert container.opens(NEW_PATH), "a container that was resized lost its device"
            assert not container.opens(OLD_PATH)
            assert not container.makes(OLD), "R60: resized, it has the lost number again"
            assert not container.makes(NEXT)
        assert other.update_claim(CLAIM, {"usb": back}) == []
        assert program_of(cgroup) == once, "another agent made it longer"
        for first, second in ((NEW, OLD), (OLD, NEW)) * 5:
            again = Wanted((Node(NEW_PATH, second, 0o660),), (Gone(NEW_PATH, first),))
            assert other.update_claim(CLAIM, {"usb": again}) == []
        assert program_of(cgroup) == once, "rules pile up"
        assert other.update_claim(CLAIM, {"other": lost}) == []
        whole = Wanted((Node(OLD_PATH, OLD, 0o660),), (Gone(NEW_PATH, NEW),))
        assert other.update_claim(CLAIM, {"usb": whole}) == []
        assert program_of(cgroup) == given, "something is left of us"
        assert container.opens(OLD_PATH)
        assert not container.makes(NEW)
        assert other.restart_claim(CLAIM, {"other"}) == []
        assert container.opens(OLD_PATH)
        assert other.restart_claim(CLAIM, {"usb"}) == []
        assert container.end() == KILLED
    late(runtime, driver, live)
    return times


def late(runtime: str, driver: str, live: LiveContainers) -> None:
    """A container that is made from files of before a loss, after it: the next look meets it, and
    leaves what another of its claims has by now."""
    lost = Wanted(gone=(Gone(OLD_PATH, OLD),))
    assert live.update_claim(CLAIM, {"usb": lost}) == []
    with running(runtime, driver) as (container, _):
        assert container.opens(OLD_PATH)
        again = Wanted(gone=(Gone(OLD_PATH, OLD, holder=CLAIM),))
        assert live.update_claim(CLAIM, {"usb": again}) == []
        assert container.opens(OLD_PATH)
        assert live.update_claim(CLAIM, {"usb": lost}) == []
        assert not container.opens(OLD_PATH)
        assert not container.makes(OLD), "R60: an own node of the lost number opens"


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        json.dump(run(*sys.argv[1:]), sys.stdout)
