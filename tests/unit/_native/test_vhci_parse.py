# SPDX-License-Identifier: Apache-2.0
"""What status texts mean: every shape, several controllers, rows in transition, bad texts."""

from __future__ import annotations

import pytest

from tests.unit._native.texts import S1, S1_HEADER, S4_HEADER, SHAPES, controllers, rows
from usbdra._native import vhci
from usbdra._native.vhci import (
    HUB_HIGH,
    HUB_SUPER,
    HUB_UNKNOWN,
    SOCKFD_NONE,
    STATE_ATTACHING,
    STATE_ERROR,
    STATE_FREE,
    STATE_USED,
    Row,
    StatusFormatError,
)


@pytest.mark.parametrize("shape", SHAPES)
def test_r02_columns_are_chosen_from_the_header(shape: str) -> None:
    text, expected = SHAPES[shape]
    assert rows(text) == expected


def test_r02_unknown_header_is_refused_with_its_text() -> None:
    header = "hub port sta spd dev sockfd local_busid flags"
    with pytest.raises(StatusFormatError, match="unknown header") as caught:
        vhci.parse([header.encode() + b"\nhs  0000 004 000 00000000 000000 0-0 0\n"])
    assert caught.value.header == header
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\n",
        b"sta spd dev sockfd local_busid\n",
        b"hub hub port sta spd dev sockfd local_busid\n",
        b"hub port sta spd dev sockfd\n",
        b"hub port sta spd bus sockfd local_busid\n",
        b"hub port sta spd dev sock local_busid\n",
        b"hub port spd sta dev sockfd local_busid\n",
        b"Hub port sta spd dev sockfd local_busid\n",
        b"prt sta bus dev ipaddr port bus_id(r/l)\n",
        b"a b c d e f g h i j k l m n o p\n",
        b"hs  0000 004 000 00000000 000000 0-0\n",
    ],
)
def test_r02_near_misses_of_a_header_are_refused(header: bytes) -> None:
    with pytest.raises(StatusFormatError, match="unknown header"):
        vhci.parse([header])


def test_header_in_the_error_is_cut_and_printable() -> None:
    with pytest.raises(StatusFormatError) as caught:
        vhci.parse([b"\xff" + b"x" * 500])
    assert caught.value.header == "\\xff" + "x" * 119
    assert len(str(caught.value)) < 200


def test_stable_kernels_mix_old_layouts_with_the_sockfd_column() -> None:
    text = (
        b"port sta spd dev      sockfd local_busid\n"
        b"0000 004 000 00000000 000000 0-0\n"
        b"0001 006 003 00030007 000011 5-2\n"
    )
    assert rows(text)[1] == Row(1, 0, HUB_UNKNOWN, 6, 3, 0x30007, 11, b"5-2")


def test_r01_controllers_keep_their_number_and_ports_go_on() -> None:
    table = vhci.parse(controllers(8, 15, 15))
    assert len(table) == 240
    assert table[30] == Row(30, 1, HUB_HIGH, 4, 0, 0, 0, b"")
    assert table[239] == Row(239, 7, HUB_SUPER, 4, 0, 0, 0, b"")
    assert table.count(HUB_HIGH, STATE_FREE) == 120
    assert table.count(HUB_SUPER, -1) == 120


def test_eleven_controllers_of_the_default_layout() -> None:
    table = vhci.parse(controllers(11, 8, 8))
    assert [table[16 * n].controller for n in range(11)] == list(range(11))
    assert len(table) == 176


def test_header_only_is_a_controller_that_is_not_ready() -> None:
    assert rows(S1_HEADER) == []
    assert rows(S1_HEADER.rstrip()) == []
    assert [r.controller for r in rows(S1_HEADER, S1)] == [1, 1, 1, 1]


def test_no_controller_at_all_is_an_empty_table() -> None:
    table = vhci.parse([])
    assert len(table) == 0
    assert list(table) == table.not_free() == []
    assert table.first(-1, -1) == -1


def test_idle_row_with_the_long_socket_column_under_the_current_header() -> None:
    assert rows(S1_HEADER + b"ss  0015 004 000 00000000 0000000000000000 0-0\n") == [
        Row(15, 0, HUB_SUPER, 4, 0, 0, 0, b"")
    ]


def test_socket_given_up_is_the_named_constant() -> None:
    (row,) = rows(S1_HEADER + b"hs  0003 006 003 00030007 4294967295 5-2\n")
    assert row == Row(3, 0, HUB_HIGH, 6, 3, 0x30007, SOCKFD_NONE, b"5-2")
    (row,) = rows(S4_HEADER + b"hs  0003 006 003 00030007           (null) 5-2\n")
    assert row == Row(3, 0, HUB_HIGH, 6, 3, 0x30007, SOCKFD_NONE, b"5-2")


@pytest.mark.parametrize("code", [1, 2, 3, 5, 6])
def test_r06_speed_code_is_given_as_it_stands(code: int) -> None:
    assert rows(S1_HEADER + b"hs  0000 006 %03d 00010002 000007 1-1\n" % code)[0].speed == code


@pytest.mark.parametrize("speed", [b"000", b"005", b"4294967295"])
def test_r05_any_32_bit_speed_parses(speed: bytes) -> None:
    text = S1_HEADER + b"ss  0000 006 %s 00010002 000007 1-1\n" % speed
    assert rows(text)[0].speed == int(speed)


def test_r10_health_comes_from_rows_alone() -> None:
    table = vhci.parse(controllers(1, 8, 8))
    assert table.count(-1, STATE_FREE) == len(table) == 16
    assert table.count(-1, STATE_ERROR) == 0


def test_last_line_may_lack_its_line_feed_and_blank_lines_are_nothing() -> None:
    assert rows(S1.rstrip()) == rows(S1) == rows(S1 + b"\n \n") == rows(S1.replace(b"\n", b"\r\n"))


@pytest.mark.parametrize(
    "row",
    [
        b"hs  0000 004 000 00000000 000000",
        b"hs  0000 004 000 00000000 000000 0-0 x",
        b"xs  0000 004 000 00000000 000000 0-0",
        b"hs  00x0 004 000 00000000 000000 0-0",
        b"hs  -001 004 000 00000000 000000 0-0",
        b"hs  0000 003 000 00000000 000000 0-0",
        b"hs  0000 008 000 00000000 000000 0-0",
        b"hs  0000 006 003 0003000g 000011 5-2",
        b"hs  0000 006 003 100030007 000011 5-2",
        b"hs  0000 006 003 00030007 4294967296 5-2",
        b"hs  0000 006 003 00030007 00000a 5-2",
        b"hs  0000 006 4294967296 00030007 000011 5-2",
        b"hs  0000 006 003 00030007 000011 ../..",
        b"hs  0000 006 003 00030007 000011 5-2/x",
        b"hs  0000 006 003 00030007 000011 -5",
        b"hs  0000 006 003 00030007 000011 5-" + b"1" * 30,
        b"hs  0000 006 003 0003 0007 000011 5-2",
        b"hs  0000 006 003 00030007 (null) 5-2",
        b"99999999999999999999999999999999 004 000 00000000 000000 0-0",
        b"\0",
    ],
)
def test_malformed_row_is_named(row: bytes) -> None:
    with pytest.raises(StatusFormatError, match="controller 0: malformed row") as caught:
        vhci.parse([S1_HEADER + row + b"\n"])
    assert row[:100].decode().replace("\0", "\\x00") in str(caught.value)
    assert caught.value.header == S1_HEADER.decode().rstrip()


@pytest.mark.parametrize(
    "row",
    [
        b"001 006 003 65536 2 ffff88003c0a8a00 2-1",
        b"001 006 003 1 65536 ffff88003c0a8a00 2-1",
        b"001 006 003 1 2 1ffff88003c0a8a00 2-1",
        b"001 006 003 1 x ffff88003c0a8a00 2-1",
    ],
)
def test_malformed_old_row_is_refused(row: bytes) -> None:
    with pytest.raises(StatusFormatError, match="malformed row"):
        vhci.parse([b"prt sta spd bus dev socket local_busid\n" + row])


def test_bus_and_device_apart_are_decimal() -> None:
    text = b"prt sta spd bus dev socket local_busid\n001 006 003 010 065 ffff88003c0a8a00 2-1\n"
    assert rows(text)[0].devid == 10 << 16 | 65


def test_port_twice_is_refused_also_over_two_controllers() -> None:
    with pytest.raises(StatusFormatError, match="controller 1: port 0 is there twice"):
        vhci.parse([S1, S1])
    with pytest.raises(StatusFormatError, match="port 2 is there twice"):
        vhci.parse([S1 + b"hs  0002 006 003 00030007 000011 5-2\n"])


def test_4096_ports_are_read_and_one_more_is_refused() -> None:
    row = b"hs  %d 006 003 00030007 000011 5-2\n"
    most = S1_HEADER + b"".join(row % n for n in range(4096))
    assert len(vhci.parse([most])) == 4096
    with pytest.raises(StatusFormatError, match="port 4096 is above 4095"):
        vhci.parse([most + row % 4096])


def test_only_bytes_are_parsed() -> None:
    for wrong in ("text", None, 3):
        with pytest.raises(TypeError):
            vhci.parse([wrong])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        vhci.parse(S1)  # type: ignore[arg-type]


def test_table_is_a_sequence() -> None:
    table = vhci.parse([S1])
    assert table[-1] == table[3]
    assert table[-4].port == 0
    for index in (4, -5):
        with pytest.raises(IndexError):
            table[index]
    assert [r.port for r in table] == [0, 1, 2, 3]


def test_count_and_first_select_by_hub_and_state() -> None:
    text = (
        S1_HEADER
        + b"hs  0000 006 003 00030007 000011 5-2\n"
        + b"hs  0001 004 000 00000000 000000 0-0\n"
        + b"ss  0002 007 000 00000000 000000 0-0\n"
        + b"hs  0003 004 000 00000000 000000 0-0\n"
        + b"ss  0004 005 000 00000000 000000 0-0\n"
    )
    table = vhci.parse([text])
    assert table.count(-1, -1) == 5
    assert table.count(HUB_HIGH, STATE_FREE) == 2
    assert table.count(HUB_HIGH, STATE_USED) == 1
    assert table.count(HUB_SUPER, STATE_FREE) == 0
    assert table.count(-1, STATE_ATTACHING) == 1
    assert table.first(HUB_HIGH, STATE_FREE) == 1
    assert table.first(HUB_HIGH, STATE_FREE, 2) == 3
    assert table.first(HUB_HIGH, STATE_FREE, 4) == -1
    assert table.first(HUB_SUPER, -1) == 2
    assert table.first(-1, -1, 99) == -1
    with pytest.raises(ValueError, match="negative"):
        table.first(-1, -1, -1)


def test_not_free_is_in_port_order_whatever_the_order_of_rows() -> None:
    text = (
        S1_HEADER
        + b"hs  0009 006 003 00030007 000011 5-2\n"
        + b"hs  0001 004 000 00000000 000000 0-0\n"
        + b"ss  0002 005 000 00000000 000000 0-0\n"
    )
    table = vhci.parse([text])
    assert [r.port for r in table.not_free()] == [2, 9]
    assert [r.port for r in table] == [9, 1, 2]


def test_table_cannot_be_derived_from() -> None:
    with pytest.raises(TypeError):
        type("Mine", (vhci.StatusTable,), {})
