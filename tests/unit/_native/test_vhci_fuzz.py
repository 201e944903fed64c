# SPDX-License-Identifier: Apache-2.0
"""The C parser and its plain twin agree on every text, good and bad."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle import status as oracle
from tests.searching import examples
from tests.unit._native.texts import S1_HEADER, S4_HEADER, S5_HEADER, S6_HEADER, SHAPES
from usbdra._native import vhci

bounded = settings(max_examples=examples(200))

WORDS = st.sampled_from(
    b"hs ss hub port prt sta spd bus dev socket sockfd local_busid 0 00 0000 0001 1 4 004 005 006 "
    b"007 8 003 00030007 FFFFFFFF 100000000 000000 4294967295 4294967296 0000000000000000 0-0 5-2 "
    b"1-1.4 (null) ffff88003c0a8a00 1ffffffffffffffff 65535 65536 4095 4096".split()
)
LINES = st.lists(WORDS, min_size=5, max_size=9).map(b" ".join)
HEADERS = st.sampled_from([S1_HEADER, S4_HEADER, S5_HEADER, S6_HEADER])


def agree(texts: list[bytes]) -> None:
    expected = found = refused = None
    with suppress(oracle.Malformed):
        expected = oracle.parse(texts)
    try:
        found = [tuple(row) for row in vhci.parse(texts)]
    except vhci.StatusFormatError as error:
        refused = error
    assert found == expected, refused
    if refused is not None:  # 120 bytes, four letters for an unprintable one
        assert len(refused.header) <= 480


@bounded
@given(st.lists(st.binary(max_size=400), max_size=3))
def test_random_bytes(texts: list[bytes]) -> None:
    agree(texts)


@bounded
@given(HEADERS, st.binary(max_size=200))
def test_random_bytes_below_a_real_header(header: bytes, rest: bytes) -> None:
    agree([header + rest])


@bounded
@given(HEADERS, st.lists(LINES, max_size=4))
def test_plausible_words_below_a_real_header(header: bytes, lines: list[bytes]) -> None:
    agree([header + b"\n".join(lines)])


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A real text with a few bytes changed, cut out or doubled."""
    text = bytearray(draw(st.sampled_from([text for text, _ in SHAPES.values()])))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text) - 1))
        length = draw(st.integers(0, 6))
        text[at : at + length] = draw(
            st.sampled_from([b"", b"0", b" ", b"\n", b"\t", b"\0", b"-", b"ss", text[at : at + 40]])
            | st.binary(max_size=3)
        )
        if not text:
            break
    return bytes(text)


@bounded
@given(st.lists(mutated(), min_size=1, max_size=2))
def test_mutated_real_texts(texts: list[bytes]) -> None:
    agree(texts)


@bounded
@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"hs", b"ss"]),
            st.integers(0, 4200),
            st.integers(3, 8),
            st.integers(0, 2**32),
            st.integers(0, 2**32),
            st.integers(0, 2**32),
            st.sampled_from([b"0-0", b"5-2", b"1-1.4.3", b"(null)", b"x"]),
        ),
        max_size=5,
    )
)
def test_rows_as_the_kernel_prints_them(
    fields: list[tuple[bytes, int, int, int, int, int, bytes]],
) -> None:
    agree([S1_HEADER + b"".join(b"%s  %04d %03d %03d %08x %06d %s\n" % f for f in fields)])


USED = b"hs  0012 006 003 00c3fa0b 000917 5-12.3\n"


@pytest.mark.parametrize("behind", [b"", b"ss  0013 004 000 00000000 000000 0-0\n"])
def test_every_byte_at_every_place_of_a_row_in_use(behind: bytes) -> None:
    """A row amid others is read eight bytes at a time, the last one from a copy of it."""
    for at in range(len(USED)):
        for byte in range(256):
            agree([S1_HEADER + USED[:at] + bytes([byte]) + USED[at + 1 :] + behind])


@pytest.mark.parametrize("behind", [b"", b"ss  0013 004 000 00000000 000000 0-0\n"])
def test_bus_ids_of_every_length(behind: bytes) -> None:
    for size in range(34):
        for busid in (b"5-12.3.4" * 5, b"1" * 40, b"0-0" + b"0" * 40):
            agree([S1_HEADER + USED[:33] + busid[:size] + b"\n" + behind])


def test_every_prefix_of_every_shape() -> None:
    for text, _ in SHAPES.values():
        for size in range(len(text)):
            agree([text[:size]])
