# SPDX-License-Identifier: Apache-2.0
"""Device programs of cgroups as the kernel keeps them: `_native.bpf` on a directory tree.

Directories stand for cgroups; descriptors of programs are real ones, so that leaks are found.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from tests.oracle import ebpf


class FakeBpf:
    """See module. `before_attach` runs once, between look and swap."""

    ALLOW_MULTI = 2

    def __init__(self) -> None:
        self.flags = self.ALLOW_MULTI
        self.attached: dict[str, list[int]] = {}
        self.programs: dict[int, bytes] = {}
        self.loads = 0
        self.before_attach: Callable[[], None] | None = None
        self.error: OSError | None = None
        self._open: dict[int, int] = {}

    def install(self, cgroup: Path, *programs: bytes) -> None:
        """What a runtime does: these programs and no others."""
        self.attached[str(cgroup)] = [self._new(text) for text in programs]

    def program(self, cgroup: Path) -> bytes:
        """The one that is attached."""
        (number,) = self.attached[str(cgroup)]
        return self.programs[number]

    def may(self, cgroup: Path, kind: int, major: int, minor: int, access: int) -> bool:
        """What the kernel answers: all programs must agree."""
        texts = [self.programs[number] for number in self.attached[str(cgroup)]]
        return all(ebpf.answer(text, kind, major, minor, access) for text in texts)

    def device_programs(self, cgroup: int, /) -> tuple[tuple[int, ...], int]:
        if self.error is not None:
            raise self.error
        return tuple(self.attached.get(self._path(cgroup), ())), self.flags

    def open_program(self, number: int, /) -> int:
        fd = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        self._open[fd] = number
        return fd

    def instructions(self, program: int, /) -> tuple[int, bytes]:
        return 15, self.programs[self._open[program]]

    def load(self, text: bytes, /) -> int:
        self.loads += 1
        return self.open_program(self._new(text))

    def attach(self, cgroup: int, program: int, flags: int, replaced: int, /) -> None:
        if self.before_attach is not None:
            act, self.before_attach = self.before_attach, None
            act()
        there = self.attached[self._path(cgroup)]
        assert flags == self.flags
        assert (replaced >= 0) == bool(flags & self.ALLOW_MULTI)
        old = self._open[replaced] if replaced >= 0 else there[0]
        if old not in there:
            raise OSError(errno.ENOENT, "attach")
        there[there.index(old)] = self._open[program]

    def _new(self, text: bytes) -> int:
        number = len(self.programs) + 1
        self.programs[number] = text
        return number

    @staticmethod
    def _path(fd: int) -> str:
        return os.readlink(f"/proc/self/fd/{fd}")
