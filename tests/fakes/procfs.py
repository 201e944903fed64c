# SPDX-License-Identifier: Apache-2.0
"""The host's /proc with processes of containers, and cgroups for them, in a directory."""

from __future__ import annotations

from pathlib import Path

EVERYBODY = "         0          0 4294967295\n"


class FakeProc:
    """`path` is /proc, `cgroups` the hierarchy. A process' root is a directory of the test."""

    def __init__(self, top: Path) -> None:
        self.path = top / "proc"
        self.cgroups = top / "cgroup"
        self.path.mkdir()
        self.cgroups.mkdir()
        (self.path / "meminfo").touch()

    def process(
        self,
        pid: int,
        cgroup: str,
        *,
        root: Path | None = None,
        started: int = 100,
        mountinfo: str = "",
        users: str = EVERYBODY,
        uid: int = 0,
    ) -> None:
        """A process in this cgroup."""
        (self.cgroups / cgroup.lstrip("/")).mkdir(parents=True, exist_ok=True)
        directory = self.path / str(pid)
        directory.mkdir(exist_ok=True)
        files = {
            "cgroup": f"0::{cgroup}\n",
            "stat": f"{pid} (a) b) c) S 1 " + "0 " * 17 + f"{started} 0 0\n",
            "mountinfo": mountinfo,
            "uid_map": users,
            "status": (
                f"Name:\tx\nPid:\t{pid}\nTracerPid:\t0\n"
                f"Uid:\t1\t{uid}\t1\t1\nGid:\t2\t{uid + 1}\t2\t2\n"
            ),
        }
        for name, text in files.items():
            (directory / name).write_text(text)
        if root is not None and not (directory / "root").is_symlink():
            (directory / "root").symlink_to(root)


def pod_cgroup(pod: str, container: str) -> str:
    """Where the kubelet puts a container of a Burstable pod without systemd."""
    return f"/kubepods/burstable/pod{pod}/{container}"
