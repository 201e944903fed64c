# SPDX-License-Identifier: Apache-2.0
ALLOW_MULTI: int
CGROUP_DEVICE: int

def device_programs(cgroup: int, /) -> tuple[tuple[int, ...], int]:
    """Identifiers of the device programs attached to this very cgroup, and their flags.

    Borrows cgroup, a descriptor of its directory. EBADF: it is none of cgroup v2.
    """

def open_program(number: int, /) -> int:
    """A descriptor of the program with this identifier; the caller closes it. ENOENT: gone."""

def instructions(program: int, /) -> tuple[int, bytes]:
    """Type of a program and its instructions as the kernel runs them, 8 bytes each. Borrows it."""

def load(text: bytes, /) -> int:
    """Load a device program; a descriptor that the caller closes.

    Raises ValueError for a size that is none, OSError with the verifier's last words.
    """

def attach(cgroup: int, program: int, flags: int = 2, replaced: int = -1, /) -> None:
    """Attach a device program to a cgroup, in the place of `replaced` when that is given.

    Borrows all. flags: those of the programs that are there. ENOENT: `replaced` is not attached.
    """
