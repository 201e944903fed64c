# SPDX-License-Identifier: Apache-2.0
"""Rules in front of a runtime's device program: what is answered, and what is read back."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle import ebpf
from tests.searching import examples
from usbdra.containers import rules, verdict
from usbdra.containers.rules import MKNOD, READ, READ_WRITE, WRITE, DeviceNumber
from usbdra.errors import KernelUnsupported

ORIGINAL = ebpf.runc(ebpf.USUAL)
STICK = DeviceNumber(189, 130)
DISK = DeviceNumber(8, 16, block=True)

numbers = st.builds(
    DeviceNumber, st.integers(0, 3) | st.just(4095), st.integers(0, 3), st.booleans()
)
accesses = st.integers(0, 7)
rule_sets = st.dictionaries(numbers, accesses, max_size=6)
originals = st.lists(
    st.tuples(
        st.sampled_from((None, ebpf.BLOCK, ebpf.CHARACTER)),
        st.integers(1, 7),
        st.none() | st.integers(0, 3),
        st.none() | st.integers(0, 3),
        st.booleans(),
    ),
    max_size=6,
).map(ebpf.runc)


def may(program: bytes, number: DeviceNumber, access: int) -> bool:
    kind = ebpf.BLOCK if number.block else ebpf.CHARACTER
    return bool(ebpf.answer(program, kind, number.major, number.minor, access))


def test_one_device_is_allowed_and_its_neighbour_is_not() -> None:
    program = rules.join({STICK: READ_WRITE}, ORIGINAL)
    assert all(may(program, STICK, access) for access in (READ, WRITE, READ_WRITE))
    for other in (DeviceNumber(189, 131), DeviceNumber(188, 130), DeviceNumber(189, 130, True)):
        assert not may(program, other, READ)
    assert may(program, DeviceNumber(1, 3), READ_WRITE)
    assert may(program, STICK, MKNOD)
    assert not may(program, STICK, MKNOD | READ)


def test_access_beyond_what_is_allowed_is_the_originals_affair() -> None:
    program = rules.join({STICK: READ}, ORIGINAL)
    assert may(program, STICK, READ)
    assert not may(program, STICK, WRITE)
    assert not may(program, STICK, READ_WRITE)
    everything = ebpf.runc([(None, 7, None, None, True)])
    assert may(rules.join({STICK: READ}, everything), STICK, WRITE)


def test_r60_what_is_denied_is_denied_whole() -> None:
    everything = ebpf.runc([(None, 7, None, None, True)])
    program = rules.join({STICK: 0}, everything)
    assert not any(may(program, STICK, access) for access in (MKNOD, READ, WRITE, 7))
    assert may(program, DeviceNumber(189, 129), 7)


def test_no_rules_leave_the_original() -> None:
    assert rules.join({}, ORIGINAL) == ORIGINAL
    assert rules.split(ORIGINAL) == ({}, ORIGINAL)


@settings(max_examples=examples(200))
@given(rule_sets, originals, numbers, st.integers(1, 7))
def test_answers_are_the_rules_then_the_originals(
    wanted: dict[DeviceNumber, int], original: bytes, number: DeviceNumber, access: int
) -> None:
    program = rules.join(wanted, original)
    rule = wanted.get(number)
    if rule == 0:
        expected = False
    elif rule is not None and not access & ~rule:
        expected = True
    else:
        expected = may(original, number, access)
    assert may(program, number, access) is expected
    assert verdict.allows(program, number, access) is expected


@settings(max_examples=examples(200))
@given(rule_sets, originals)
def test_rules_are_read_back_and_never_pile_up(
    wanted: dict[DeviceNumber, int], original: bytes
) -> None:
    program = rules.join(wanted, original)
    assert rules.split(program) == (wanted, original)
    have, kept = rules.split(program)
    assert rules.join(have, kept) == program


@settings(max_examples=examples(200))
@given(rule_sets.filter(bool), originals, st.data())
def test_a_program_that_somebody_changed_is_not_taken_for_ours(
    wanted: dict[DeviceNumber, int], original: bytes, data: st.DataObject
) -> None:
    program = bytearray(rules.join(wanted, original))
    ours = len(program) - len(original)
    at = data.draw(st.integers(8, ours - 1))
    program[at] ^= data.draw(st.integers(1, 255))
    try:
        have, kept = rules.split(bytes(program))
    except KernelUnsupported:
        return
    assert rules.join(have, kept) == bytes(program)


@given(st.binary(max_size=200).map(lambda text: text[: len(text) // 8 * 8]))
def test_any_bytes_are_split_or_refused(text: bytes) -> None:
    try:
        have, original = rules.split(text)
    except KernelUnsupported:
        return
    assert rules.join(have, original) == text


@pytest.mark.parametrize("code", [0x85, 0x18])
def test_a_program_that_cannot_be_loaded_again_is_refused(code: int) -> None:
    with pytest.raises(KernelUnsupported, match="calls functions or has maps"):
        rules.split(ebpf.op(code) + ORIGINAL)


def test_there_is_an_end_to_rules() -> None:
    many = {DeviceNumber(189, minor): 0 for minor in range(rules.MAX_RULES + 1)}
    with pytest.raises(KernelUnsupported, match="513 device rules"):
        rules.join(many, ORIGINAL)


@pytest.mark.parametrize(
    "program",
    [
        b"",
        ebpf.op(0x05, offset=-1),
        ebpf.op(0x05, offset=-5),
        ebpf.op(0x05, offset=500),
        ebpf.op(0x85) + ebpf.op(0x95),
        ebpf.op(0x61, 0, 1, 12) + ebpf.op(0x95),
        ebpf.op(0x61, 0, 3, 0) + ebpf.op(0x95),
        ebpf.op(0xBF, 0, 1) + ebpf.op(0x95),
        ebpf.op(0x95),
        struct.pack("<BBhi", 0x61, 0x10, 0, 0)[:7],
    ],
    ids=["empty", "loop", "before", "behind", "call", "beyond", "no pointer", "pointer", "nothing",
         "half"],
)  # fmt: skip
def test_what_is_not_understood_is_not_guessed(program: bytes) -> None:
    assert verdict.allows(program, STICK, READ) is None


def test_parts_of_words_and_halves_of_registers() -> None:
    program = (
        ebpf.op(0x69, 2, 1, 2)  # the access alone
        + ebpf.op(0xBC, 0, 2) + ebpf.op(0x57, 0, 0, 0, -2) + ebpf.op(0x95)
    )  # fmt: skip
    assert verdict.allows(program, STICK, READ) is True
    assert verdict.allows(program, STICK, MKNOD) is False
