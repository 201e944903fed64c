# SPDX-License-Identifier: Apache-2.0
"""What a device program says to one access, found by running it. Pure.

Owns an interpreter of the instructions that container runtimes use in such programs. What it does
not know it does not guess: the answer is None then. With it rules are made only where the
runtime's own program says something else, so that what is taken back leaves nothing behind.
Source: Documentation/bpf/standardization/instruction-set.rst.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Mapping

from usbdra.containers.rules import DeviceNumber

_MAX_STEPS = 65536
_ALL = (1 << 64) - 1
_INSTRUCTION = struct.Struct("<BBhi")
_LOADS: Mapping[int, int] = {0x61: 4, 0x69: 2, 0x71: 1}  # LDX of a word, half, byte
_ALU: Mapping[int, Callable[[int, int], int]] = {
    0x00: operator.add,
    0x10: operator.sub,
    0x40: operator.or_,
    0x50: operator.and_,
    0x60: lambda a, b: a << (b & 63),
    0x70: lambda a, b: a >> (b & 63),
    0xA0: operator.xor,
    0xB0: lambda _, b: b,
}
_JUMPS: Mapping[int, Callable[[int, int], bool]] = {
    0x00: lambda *_: True,
    0x10: operator.eq,
    0x20: operator.gt,
    0x30: operator.ge,
    0x40: lambda a, b: bool(a & b),
    0x50: operator.ne,
    0xA0: operator.lt,
    0xB0: operator.le,
}


def allows(program: bytes, number: DeviceNumber, access: int) -> bool | None:
    """Whether the program lets this access through; None when it cannot be told."""
    kind = 1 if number.block else 2
    context = struct.pack("<III", access << 16 | kind, number.major, number.minor)
    try:
        return _run(list(_INSTRUCTION.iter_unpack(program)), context) != 0
    except (KeyError, IndexError, struct.error):
        return None


def _run(program: list[tuple[int, ...]], context: bytes) -> int:
    """Raises KeyError for what is not known, IndexError for a way out of the program."""
    registers: dict[int, int | bytes] = {1: context}
    at = 0
    for _ in range(_MAX_STEPS):
        code, pair, offset, value = program[at]
        to, source = pair & 15, pair >> 4
        at += 1
        if code == 0x95:
            return _number(registers[0])
        if code in _LOADS:
            size, area = _LOADS[code], registers[source]
            if not isinstance(area, bytes) or not 0 <= offset <= len(area) - size:
                raise KeyError(code)
            registers[to] = int.from_bytes(area[offset : offset + size], "little")
            continue
        kind, by_register, what = code & 7, code & 8, code & 0xF0
        if kind in (4, 7):
            registers[to] = _computed(registers, code, to, source, value)
            continue
        if kind not in (5, 6):
            raise KeyError(code)
        mask = _ALL if kind == 5 else 0xFFFFFFFF
        right = _number(registers[source]) if by_register else value & mask
        left = _number(registers[to]) if what else 0
        if _JUMPS[what](left & mask, right & mask):
            at += offset
            if at < 0:
                raise IndexError(at)
    raise IndexError(at)


def _computed(
    registers: Mapping[int, int | bytes], code: int, to: int, source: int, value: int
) -> int | bytes:
    wide, what = code & 7 == 7, code & 0xF0
    mask = _ALL if wide else 0xFFFFFFFF
    if code == 0xBF:  # a pointer may be copied
        return registers[source]
    right = _number(registers[source]) if code & 8 else value & mask
    left = _number(registers[to]) if what != 0xB0 else 0
    if not wide and what in (0x60, 0x70):
        right &= 31
    return _ALU[what](left & mask, right & mask) & mask


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise KeyError("a pointer is no number")
    return value
