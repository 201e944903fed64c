# SPDX-License-Identifier: Apache-2.0
"""Rules in front of a container's device program: their instructions, and back. Pure.

Owns the form of a program that has rules of ours. The container runtime's own program follows
them unchanged: jumps of eBPF are relative, so it does not matter what stands before. What is ours
begins with two instructions that say so and how many there are; whoever reads the program, be it
a later agent, has the runtime's own again by leaving those out. So nothing is kept elsewhere, and
when a runtime puts a new program in place there is nothing stale. Source:
Documentation/bpf/standardization/instruction-set.rst, include/uapi/linux/bpf.h.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from usbdra.errors import KernelUnsupported

SIZE = 8
"""Bytes of an instruction."""
MARK = 0x75736264
"""The first value that a program with rules of ours computes: "usbd"."""
MAX_RULES = 512

MKNOD, READ, WRITE = 1, 2, 4
"""BPF_DEVCG_ACC_*: what a program is asked about, in the upper half of `access_type`."""
READ_WRITE = READ | WRITE
_BLOCK, _CHARACTER = 1, 2

_MOV, _AND, _RSH, _LOAD, _UNEQUAL, _EXIT = 0xB7, 0x57, 0x77, 0x61, 0x55, 0x95
_CALL, _WIDE = 0x85, 0x18
_TYPE_AT, _MAJOR_AT, _MINOR_AT = 0, 4, 8
"""Offsets in struct bpf_cgroup_dev_ctx."""
_INSTRUCTION = struct.Struct("<BBhi")


@dataclass(frozen=True, slots=True, order=True)
class DeviceNumber:
    """What the kernel knows a device by."""

    major: int
    minor: int
    block: bool = False

    def __str__(self) -> str:
        return f"{'b' if self.block else 'c'} {self.major}:{self.minor}"


Rules = Mapping[DeviceNumber, int]
"""What is allowed of each of these devices, in bits of access, whatever the runtime's program
says; 0 denies every access."""


def join(rules: Rules, original: bytes) -> bytes:
    """The program that follows `rules`, and for everything else `original`.

    No rules: the original itself. Raises KernelUnsupported for more than MAX_RULES.
    """
    if not rules:
        return original
    if len(rules) > MAX_RULES:
        raise KernelUnsupported(f"a container with {len(rules)} device rules of ours")
    body = b"".join(_rule(number, rules[number]) for number in sorted(rules))
    return _mov(0, MARK) + _mov(0, len(body) // SIZE + 2) + body + original


def split(text: bytes) -> tuple[dict[DeviceNumber, int], bytes]:
    """Rules and original of a program as the kernel shows it; the reverse of `join`.

    Raises KernelUnsupported when rules of ours are not as we wrote them, and for an original that
    cannot be loaded again from what the kernel shows of it: one that calls or has maps.
    """
    rules: dict[DeviceNumber, int] = {}
    original = text
    if marked(text):
        size = _at(text, 1)[3] * SIZE
        rules, original = dict(_rules(text[2 * SIZE : size])), text[size:]
        if not rules or join(rules, original) != text:
            raise KernelUnsupported("the rules in its device program are not as they were written")
    for code, *_ in _INSTRUCTION.iter_unpack(original):
        if code in (_CALL, _WIDE):
            raise KernelUnsupported("its device program calls functions or has maps")
    return rules, original


def marked(text: bytes) -> bool:
    """Whether a program begins with rules of ours."""
    return _at(text, 0) == (_MOV, 0, 0, MARK)


def _rules(text: bytes) -> Iterator[tuple[DeviceNumber, int]]:
    """As far as it can be understood; `join` of the result shows whether that is all."""
    at = 0
    while len(text) - at * SIZE >= _DENY_LENGTH * SIZE:
        kind, major, minor = (_at(text, at + step)[3] for step in (2, 4, 6))
        number = DeviceNumber(major, minor, kind == _BLOCK)
        if _at(text, at + _TESTS)[0] == _MOV:
            yield number, 0
            at += _DENY_LENGTH
        else:
            yield number, ~_at(text, at + _TESTS + 2)[3] & 0xFFFF
            at += _ALLOW_LENGTH


_TESTS = 7
_DENY_LENGTH = _TESTS + 2
_ALLOW_LENGTH = _TESTS + 6


def _rule(number: DeviceNumber, access: int) -> bytes:
    """Skips itself for every other device, and for access that it says nothing of."""
    kind = _BLOCK if number.block else _CHARACTER
    if access:
        verdict = (
            _load(2, _TYPE_AT)
            + _op(_RSH, 2, 16)
            + _op(_AND, 2, 0xFFFF & ~access)
            + _unequal(2, 0, 2)
            + _mov(0, 1)
            + _EXITS
        )
    else:
        verdict = _mov(0, 0) + _EXITS
    rest = len(verdict) // SIZE
    return (
        _load(2, _TYPE_AT)
        + _op(_AND, 2, 0xFFFF)
        + _unequal(2, kind, rest + 4)
        + _load(3, _MAJOR_AT)
        + _unequal(3, number.major, rest + 2)
        + _load(3, _MINOR_AT)
        + _unequal(3, number.minor, rest)
        + verdict
    )


def _at(text: bytes, number: int) -> tuple[int, int, int, int]:
    """Code, registers, offset and value of an instruction; zeros behind the end."""
    if len(text) < (number + 1) * SIZE:
        return (0, 0, 0, 0)
    code, registers, offset, value = _INSTRUCTION.unpack_from(text, number * SIZE)
    return (code, registers, offset, value)


def _mov(register: int, value: int) -> bytes:
    return _op(_MOV, register, value)


def _op(code: int, register: int, value: int) -> bytes:
    return _INSTRUCTION.pack(code, register, 0, value)


def _load(register: int, offset: int) -> bytes:
    """A word of the context, which is where register 1 points to."""
    return _INSTRUCTION.pack(_LOAD, 1 << 4 | register, offset, 0)


def _unequal(register: int, value: int, skipped: int) -> bytes:
    return _INSTRUCTION.pack(_UNEQUAL, register, skipped, value)


_EXITS = _INSTRUCTION.pack(_EXIT, 0, 0, 0)
