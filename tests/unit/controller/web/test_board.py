# SPDX-License-Identifier: Apache-2.0
"""Viewers are told each change once, in order, and what they missed not at all."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from usbdra.controller.web import board
from usbdra.controller.web.board import Behind, Board
from usbdra.controller.web.stream import ROWS, parts

BOTH = ("a", "b")


def test_a_viewer_gets_all_and_then_what_is_new() -> None:
    own = Board()
    assert own.put("a", "x", {"n": 1})
    assert own.put("b", "y", {"n": 2})
    assert not own.put("a", "x", {"n": 1}), "nothing is different"
    assert not own.put("a", "never", None), "it was not there"
    place, found = own.since(0, BOTH)
    assert found == {"a": {"x": {"n": 1}}, "b": {"y": {"n": 2}}}
    assert own.since(place, BOTH) == (place, {})
    own.put("a", "x", {"n": 3})
    own.put("b", "y", None)
    assert own.since(place, BOTH)[1] == {"a": {"x": {"n": 3}}, "b": {"y": None}}
    assert own.since(place, ["b"])[1] == {"b": {"y": None}}
    assert own.since(0, BOTH)[1] == {"a": {"x": {"n": 3}}}


def test_a_viewer_that_is_too_far_behind_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "MAX_GONE", 2)
    own = Board()
    for key in "wxyz":
        own.put("a", key, {})
    early, _ = own.since(0, BOTH)
    for key in "xyz":
        own.put("a", key, None)
    with pytest.raises(Behind):
        own.since(early, BOTH)
    place, found = own.since(0, BOTH)
    assert found == {"a": {"w": {}}}
    own.put("a", "x", {"back": True})
    assert own.since(place, BOTH)[1] == {"a": {"x": {"back": True}}}


STEP = st.tuples(
    st.sampled_from(BOTH), st.sampled_from("xyz"), st.none() | st.integers(0, 2), st.booleans()
)


@given(st.lists(STEP, max_size=40))
def test_whoever_follows_has_what_is_there(steps: list[tuple[str, str, int | None, bool]]) -> None:
    own, place = Board(), 0
    truth: dict[tuple[str, str], int] = {}
    seen: dict[tuple[str, str], int] = {}
    for section, key, value, looks in steps:
        own.put(section, key, None if value is None else {"n": value})
        truth.pop((section, key), None)
        if value is not None:
            truth[section, key] = value
        if looks:
            place, found = own.since(place, BOTH)
            for name, rows in found.items():
                for row_key, row in rows.items():
                    if row is None:
                        seen.pop((name, row_key), None)
                    else:
                        seen[name, row_key] = row["n"]
            assert seen == truth


def test_large_news_come_in_pieces() -> None:
    rows: dict[str, board.Row | None] = {str(n): {} for n in range(ROWS + 1)}
    found = list(parts({"a": rows, "b": {"z": None}}))
    assert [sum(map(len, piece.values())) for piece in found] == [ROWS, 2]
    assert found[1] == {"a": {str(ROWS): {}}, "b": {"z": None}}
    assert list(parts({})) == []
