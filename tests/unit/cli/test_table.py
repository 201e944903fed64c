# SPDX-License-Identifier: Apache-2.0
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from usbdra.cli.invocation import to_yaml
from usbdra.cli.table import Growing, printable, render, width


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert render(("A", "LONG"), [("1", "x"), ("123", "y")]) == "A     LONG\n1     x\n123   y\n"


def test_short_rows_and_no_rows() -> None:
    assert render(("A", "B"), [("1",)]) == "A   B\n1\n"
    assert render(("A", "B"), []) == "A   B\n"


def test_rows_that_come_later_keep_the_columns() -> None:
    table = Growing(("A", "B"))
    assert table.add([("123", "y")]) == "A     B\n123   y\n"
    assert table.add([("1", "z")]) == "1     z\n"
    assert table.add([]) == ""


@pytest.mark.parametrize(("text", "columns"), [("abc", 3), ("漢字", 4), ("e\u0301", 1), ("é", 1)])
def test_width_of_letters_that_are_not_ascii(text: str, columns: int) -> None:
    assert width(text) == columns


@given(st.text(alphabet=st.characters(), max_size=40))
def test_nothing_a_terminal_would_obey_is_printed(text: str) -> None:
    assert printable(text).isprintable()


@pytest.mark.parametrize("text", ["0781", "1e3", "y", "N", "0x1f", ".5", "+1", "-", "~", "1_0"])
def test_texts_that_look_like_something_else_are_quoted(text: str) -> None:
    assert to_yaml({"k": text}) == f"k: '{text}'\n"


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
def test_yaml_texts_read_back(text: str) -> None:
    assert yaml.safe_load(to_yaml([text, {"k": text}])) == [text, {"k": text}]


def test_yaml_keeps_the_line_breaks_of_unicode() -> None:
    assert to_yaml({"k": "a\x85b\u2028"}) == 'k: "a\\Nb\\L"\n'
