# SPDX-License-Identifier: Apache-2.0
"""A container's device program, changed in place: one device more, one device less.

Owns the swap on one cgroup: the runtime's own program with today's rules in front, in one step
that leaves no moment without a program and loses no change that somebody else makes meanwhile.
Must not know claims or find containers.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from usbdra.containers import rules, verdict
from usbdra.containers.rules import DeviceNumber, Rules
from usbdra.errors import KernelUnsupported, NotFound, NotPermitted

ATTEMPTS = 5
"""How often a change is begun anew because the program was replaced meanwhile."""
_USE = (rules.READ, rules.WRITE)
"""Making a node is not using it: runtimes let every container do that (R60)."""


class Bpf(Protocol):
    """What of _native/bpf.pyx is used here."""

    ALLOW_MULTI: int

    def device_programs(self, cgroup: int, /) -> tuple[tuple[int, ...], int]:
        """Identifiers of the programs, and their flags."""
        ...

    def open_program(self, number: int, /) -> int:
        """A descriptor of one."""
        ...

    def instructions(self, program: int, /) -> tuple[int, bytes]:
        """Type and instructions."""
        ...

    def load(self, text: bytes, /) -> int:
        """A descriptor of a new one."""
        ...

    def attach(self, cgroup: int, program: int, flags: int, replaced: int, /) -> None:
        """The new one in place of the old one."""
        ...


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be different. allow: devices with bits of access; deny: devices to be out of
    reach, though the runtime's own program may allow them."""

    allow: Mapping[DeviceNumber, int]
    deny: Iterable[DeviceNumber] = ()

    def applied(self, have: Rules, original: bytes) -> Rules:
        """The rules after it: only those by which the original's answers change."""
        wanted = dict(have)
        for number in self.deny:
            wanted.pop(number, None)
            if any(verdict.allows(original, number, a) is not False for a in _USE):
                wanted[number] = 0
        for number, access in self.allow.items():
            wanted.pop(number, None)
            if verdict.allows(original, number, access) is not True:
                wanted[number] = access
        return wanted


def change(cgroups: Sequence[Path], wanted: Change, *, bpf: Bpf | None = None) -> bool:
    """Make the container of these cgroups follow `wanted`; whether anything had to be changed.

    cgroups: the container's own and perhaps one below; every program on the way must agree.
    Raises NotFound when the container is gone; KernelUnsupported when its devices are not
    governed by programs that can be changed; NotPermitted.
    """
    calls = bpf or _calls()
    opened: list[tuple[int, Path]] = []
    try:
        for path in cgroups:  # one by one: what is open is closed when the next one fails
            fd = _opened(path)
            opened += [(fd, path)]
        found = [_count(fd, path, calls) for fd, path in opened]
        if not any(found):
            raise KernelUnsupported(f"cgroup {cgroups[0]} has no device program")
        changed = [_kept_trying(fd, path, wanted, calls) for fd, path in opened]
        return any(changed)
    finally:
        for fd, _ in opened:
            os.close(fd)


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotFound(f"cgroup {path} is gone") from None
    except OSError as error:
        raise KernelUnsupported(f"cgroup {path}: {error.strerror}") from error


def _count(cgroup: int, path: Path, bpf: Bpf) -> int:
    with _explained(path):
        return len(bpf.device_programs(cgroup)[0])


def _kept_trying(cgroup: int, path: Path, wanted: Change, bpf: Bpf) -> bool:
    for _ in range(ATTEMPTS):
        with _explained(path):
            try:
                return _change(cgroup, wanted, bpf)
            except FileNotFoundError:
                continue
    raise KernelUnsupported(f"the device program of cgroup {path} does not stay the same")


def _change(cgroup: int, wanted: Change, bpf: Bpf) -> bool:
    """One attempt. FileNotFoundError: a program that was looked at is not attached any more.

    To deny, one program is enough. To allow all must agree: of several, systemd's has been told
    (scopes.py), and any other is somebody's own fence, which is not ours to open.
    """
    numbers, flags = bpf.device_programs(cgroup)
    if not numbers:
        return False
    with ExitStack() as stack:
        programs = [_opened_program(number, bpf, stack) for number in numbers]
        old, text = next((one for one in programs if rules.marked(one[1])), programs[0])
        for fd, other in programs:
            if fd != old and not _lets_through(other, wanted.allow):
                raise KernelUnsupported("a device program beside its runtime's denies the device")
        have, original = rules.split(text)
        joined = rules.join(wanted.applied(have, original), original)
        if joined == text:
            return False
        new = bpf.load(joined)
        stack.callback(os.close, new)
        # Without that flag there can be only one, and a new one takes its place by itself.
        bpf.attach(cgroup, new, flags, old if flags & bpf.ALLOW_MULTI else -1)
    return True


def _opened_program(number: int, bpf: Bpf, stack: ExitStack) -> tuple[int, bytes]:
    """Descriptor, until the stack is left, and instructions."""
    fd = bpf.open_program(number)
    stack.callback(os.close, fd)
    return fd, bpf.instructions(fd)[1]


def _lets_through(program: bytes, wanted: Mapping[DeviceNumber, int]) -> bool:
    """Whether it allows all of this, as far as can be told."""
    return all(verdict.allows(program, number, wanted[number]) is True for number in wanted)


@contextmanager
def _explained(cgroup: Path) -> Iterator[None]:
    """Errors that name the cgroup and, where the kernel says why, the remedy."""
    try:
        yield
    except KernelUnsupported as error:
        raise KernelUnsupported(f"cgroup {cgroup} stays as it is: {error}") from error
    except OSError as error:
        if error.errno == errno.EPERM:
            raise NotPermitted(f"device program of {cgroup}: {error}; run privileged") from error
        if error.errno == errno.EBADF:
            raise KernelUnsupported(f"{cgroup} is no cgroup of version 2") from error
        raise KernelUnsupported(f"device program of {cgroup}: {error}") from error


def _calls() -> Bpf:
    from usbdra._native import bpf

    found: Bpf = bpf
    return found
