# SPDX-License-Identifier: Apache-2.0
"""The containers that run on this node, by their processes.

Owns one look at the host's /proc, which may be mounted anywhere: a container has the cgroup that
its first process is in, and what that process has mounted says which claims it was given. No API
and no runtime is asked, so the answer is there when links break and servers are away.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from usbdra.containers import cgroups, mounts
from usbdra.containers.cgroups import OWN, Place
from usbdra.containers.mounts import Given, Source
from usbdra.errors import KernelUnsupported

MAX_FILE = 1 << 20
"""Bytes of a file in /proc that are read; mounts of a process are some kilobytes."""


@dataclass(frozen=True, slots=True)
class Container:
    """A running container. pid: its first process, as the host counts."""

    pod: str
    name: str
    """The runtime's identifier, 64 hexadecimal digits."""
    cgroups: tuple[str, ...]
    """Where its device programs may be: its own cgroup, and the one below that crun makes."""
    pid: int
    started: int = field(compare=False, default=0)


class Processes:
    """The node's processes. proc: where the host's /proc is."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc

    def containers(self) -> list[Container]:
        """Every container of a pod that has a process now. Blocks for some milliseconds.

        Raises KernelUnsupported when we cannot see where processes are.
        """
        found: dict[str, Container] = {}
        for pid in self._pids():
            place = self._place(pid)
            started = self._started(pid) if place is not None else None
            if place is None or started is None:
                continue
            container = Container(place.pod, place.container, _cgroups(place), pid, started)
            first = found.get(place.container)
            if first is None or (started, pid) < (first.started, first.pid):
                found[place.container] = container
        return list(found.values())

    def container(self, pod: str, name: str) -> Container | None:
        """One container of a pod; None when it has no process."""
        for found in self.containers():
            if (found.pod, found.name) == (pod, name):
                return found
        return None

    def given(self, container: Container, source: Source) -> frozenset[Given]:
        """What of our claims this container has mounted."""
        text = self._read(f"{container.pid}/mountinfo") or ""
        return mounts.given(text, source)

    def open(self, container: Container) -> int | None:
        """A descriptor of its first process' directory, proven to be that one; the caller closes
        it. None when the process is gone."""
        try:
            fd = os.open(self._proc / str(container.pid), os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return None
        text = read_at(fd, "cgroup")
        place = cgroups.place(cgroups.of_process(text or "") or "")
        if place is None or (place.pod, place.container) != (container.pod, container.name):
            os.close(fd)
            return None
        return fd

    def _pids(self) -> Iterator[int]:
        return (int(name) for name in os.listdir(self._proc) if name.isdigit())

    def _place(self, pid: int) -> Place | None:
        path = cgroups.of_process(self._read(f"{pid}/cgroup") or "")
        if path and path.startswith("/.."):
            raise KernelUnsupported(
                "the agent is in a cgroup namespace of its own and cannot tell where containers "
                "are; run it privileged"
            )
        return cgroups.place(path) if path else None

    def _started(self, pid: int) -> int | None:
        """Clock ticks from boot to its start (man 5 proc_pid_stat); a name may have brackets."""
        fields = (self._read(f"{pid}/stat") or "").rpartition(") ")[2].split()
        return int(fields[19]) if len(fields) > 19 and fields[19].isdigit() else None

    def _read(self, name: str) -> str | None:
        return read_at(None, self._proc / name)


def read_at(directory: int | None, name: str | Path) -> str | None:
    """A file of /proc, below an open directory if one is given; None when its process is gone."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return None
    try:
        return _all_of(fd)
    finally:
        os.close(fd)


def _all_of(fd: int) -> str | None:
    text = bytearray()
    try:
        while len(text) < MAX_FILE and (more := os.read(fd, 65536)):
            text += more
    except OSError:  # the process went between two reads
        return None
    return text.decode("utf-8", "surrogateescape")


def _cgroups(place: Place) -> tuple[str, ...]:
    own = place.inner.split("/")[0] == OWN
    return (place.cgroup, f"{place.cgroup}/{OWN}") if own else (place.cgroup,)
