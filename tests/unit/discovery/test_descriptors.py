# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.descriptors import (
    BULK,
    ISOCHRONOUS,
    KEYBOARD,
    STORAGE,
    Endpoint,
    Interface,
    configuration,
    device_descriptor,
)
from tests.searching import examples
from usbdra.discovery.descriptors import MAX_BYTES, DescriptorSummary, parse

HEAD = device_descriptor(0x0781, 0x5581)
WHOLE = HEAD + configuration((STORAGE,))


def test_storage_device() -> None:
    assert parse(WHOLE) == DescriptorSummary(
        serial_index=3,
        isochronous=False,
        interfaces=((0, 8, 6, 80),),
    )


def test_r28_isochronous_endpoint_in_a_later_alternate_setting() -> None:
    idle = Interface(1, 2, number=1)
    playing = Interface(
        1, 2, number=1, alternate=1, endpoints=(Endpoint(0x01, ISOCHRONOUS | 0x0C, 192),)
    )
    summary = parse(HEAD + configuration((Interface(1, 1), idle, playing)))
    assert summary.isochronous
    assert summary.interfaces == ((0, 1, 1, 0), (1, 1, 2, 0))
    assert not parse(HEAD + configuration((Interface(1, 1), idle))).isochronous


def test_r28_isochronous_endpoint_in_the_second_configuration() -> None:
    second = configuration((Interface(14, endpoints=(Endpoint(0x82, ISOCHRONOUS),)),), value=2)
    data = device_descriptor(1, 2, configurations=2) + configuration((KEYBOARD,)) + second
    summary = parse(data)
    assert summary.isochronous
    assert summary.interfaces == ((0, 3, 1, 1),)


def test_class_specific_descriptors_are_stepped_over() -> None:
    extra = bytes([5, 0x24, 0, 0x10, 1]) + bytes([6, 0x30, 0, 0, 0, 0])
    data = HEAD + configuration((Interface(2, 2, 1), Interface(10, number=1))) + extra
    assert parse(data).interfaces == ((0, 2, 2, 1), (1, 10, 0, 0))


@pytest.mark.parametrize("length", range(len(WHOLE)))
def test_cut_bytes_give_what_comes_before_the_cut(length: int) -> None:
    summary = parse(WHOLE[:length])
    assert summary.serial_index == (3 if length >= len(HEAD) else 0)
    assert summary.interfaces == (((0, 8, 6, 80),) if length >= len(HEAD) + 18 else ())


@pytest.mark.parametrize("length", [0, 1])
def test_descriptor_that_does_not_move_on_ends_the_walk(length: int) -> None:
    summary = parse(HEAD + bytes([length, 4]) + configuration((STORAGE,)))
    assert summary == DescriptorSummary(serial_index=3)


def test_short_endpoint_is_not_read_past_its_end() -> None:
    data = HEAD + configuration((Interface(8),)) + bytes([3, 5, ISOCHRONOUS])
    assert not parse(data).isochronous


def test_endpoint_types_other_than_isochronous() -> None:
    for kind in (0, BULK, 3):
        interface = Interface(8, endpoints=(Endpoint(0x81, kind),))
        assert not parse(HEAD + configuration((interface,))).isochronous


@settings(max_examples=examples(200))
@given(st.binary(max_size=600))
def test_any_bytes_end_without_an_error(data: bytes) -> None:
    for given_data in (data, HEAD + data):
        summary = parse(given_data)
        assert len(summary.interfaces) <= len(given_data) // 9


@settings(max_examples=examples(200))
@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255))
def test_any_changed_byte_ends_without_an_error(position: int, value: int) -> None:
    data = bytearray(WHOLE)
    data[position] = value
    assert parse(memoryview(data)).serial_index in range(256)


def test_length_is_capped() -> None:
    endless = HEAD + bytes([2, 0x7F]) * 40000 + configuration((STORAGE,))
    assert len(endless) > MAX_BYTES
    assert parse(endless).interfaces == ()
