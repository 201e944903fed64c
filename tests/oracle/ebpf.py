# SPDX-License-Identifier: Apache-2.0
"""Device programs in plain Python: what the kernel would answer, and what runtimes load.

An interpreter of the instructions that occur, written down one by one, that fails loudly for any
other; and the program that runc makes of a list of rules (libcontainer/cgroups/devices/
devicefilter.go). Must not import the code it checks.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

MKNOD, READ, WRITE = 1, 2, 4
BLOCK, CHARACTER = 1, 2
U32 = 2**32 - 1

Rule = tuple[int | None, int, int | None, int | None, bool]
"""(type, access, major, minor, allow); None stands for all."""


def op(code: int, to: int = 0, source: int = 0, offset: int = 0, value: int = 0) -> bytes:
    """One instruction."""
    return struct.pack("<BBhi", code, source << 4 | to, offset, value)


def answer(program: bytes, kind: int, major: int, minor: int, access: int) -> int:
    """Run the program as the kernel does for one access."""
    code = list(struct.iter_unpack("<BBhi", program))
    words = [access << 16 | kind, major, minor]
    r = [0] * 11
    context = object()
    r[1] = context  # type: ignore[call-overload]
    at = 0
    while True:
        opcode, registers, offset, value = code[at]
        to, source = registers & 15, registers >> 4
        at += 1
        if opcode == 0x95:
            return r[0]
        if opcode == 0x61:
            assert r[source] is context
            r[to] = words[offset // 4]
        elif opcode in (0xB7, 0xB4):
            r[to] = value
        elif opcode == 0xBC:
            r[to] = r[source] & U32
        elif opcode in (0x57, 0x54):
            r[to] &= value & U32
        elif opcode in (0x77, 0x74):
            r[to] >>= value
        elif opcode == 0x55:
            at += offset if r[to] != value else 0
        elif opcode == 0x5D:
            at += offset if r[to] != r[source] else 0
        elif opcode == 0x05:
            at += offset
        else:
            raise AssertionError(f"instruction {opcode:#x}")


def runc(rules: Sequence[Rule]) -> bytes:
    """What runc loads; the last rule that fits wins, so they stand in reverse."""
    text = (
        op(0x61, 2, 1, 0) + op(0x54, 2, 0, 0, 0xFFFF)
        + op(0x61, 3, 1, 0) + op(0x74, 3, 0, 0, 16)
        + op(0x61, 4, 1, 4) + op(0x61, 5, 1, 8)
    )  # fmt: skip
    for kind, access, major, minor, allow in reversed(rules):
        tests: list[tuple[int, ...]] = []
        if kind is not None:
            tests.append((0x55, 2, 0, kind))
        if access != MKNOD | READ | WRITE:
            tests += [(0xBC, 1, 3, 0), (0x54, 1, 0, access), (0x5D, 1, 3, 0)]
        if major is not None:
            tests.append((0x55, 4, 0, major))
        if minor is not None:
            tests.append((0x55, 5, 0, minor))
        for number, (code, to, source, value) in enumerate(tests):
            jumps = code in (0x55, 0x5D)
            text += op(code, to, source, len(tests) - number + 1 if jumps else 0, value)
        text += op(0xB4, 0, 0, 0, int(allow)) + op(0x95)
    return text + op(0xB4) + op(0x95)


ALL = MKNOD | READ | WRITE
USUAL: Sequence[Rule] = (
    (CHARACTER, MKNOD, None, None, True),
    (BLOCK, MKNOD, None, None, True),
    (CHARACTER, ALL, 1, 3, True),
    (CHARACTER, ALL, 1, 5, True),
    (CHARACTER, ALL, 5, 0, True),
    (CHARACTER, ALL, 136, None, True),
)
"""What every container may: make nodes of all kinds, and use these."""
