# SPDX-License-Identifier: Apache-2.0
"""What of a peer's word for its span is believed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.searching import examples
from usbdra.tracing import traceparent
from usbdra.tracing.traceparent import TraceParent

# The recommendation's own example.
GOOD = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def _changed(place: int, letter: str) -> str:
    return GOOD[:place] + letter + GOOD[place + 1 :]


def test_the_recommendations_example() -> None:
    found = traceparent.parse(GOOD)
    assert found == TraceParent(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7, True)
    assert str(found) == GOOD == traceparent.cleaned(GOOD)
    assert len(GOOD) == traceparent.SIZE


@pytest.mark.parametrize(
    "text",
    [
        "",
        GOOD[:-1],
        GOOD + "0",
        GOOD + "-00",
        GOOD.upper(),
        "01" + GOOD[2:],
        "ff" + GOOD[2:],
        GOOD.replace("-", "_"),
        "00-" + "0" * 32 + GOOD[35:],
        GOOD[:36] + "0" * 16 + "-01",
        GOOD[:-2] + "0g",
        GOOD[:-1] + "\n",
        GOOD.replace("0", "\N{ARABIC-INDIC DIGIT ZERO}"),
    ],
)
def test_anything_else_is_no_span(text: str) -> None:
    assert traceparent.parse(text) is None
    assert traceparent.cleaned(text) == ""


@pytest.mark.parametrize("value", [None, 7, True, [GOOD], {"traceparent": GOOD}])
def test_what_is_no_text_is_none(value: object) -> None:
    assert traceparent.cleaned(value) == ""


def test_of_the_flags_only_what_we_know_goes_on() -> None:
    assert traceparent.cleaned(GOOD[:-2] + "ff") == GOOD
    assert traceparent.cleaned(GOOD[:-2] + "fe") == GOOD[:-2] + "00"


@given(st.text(max_size=60) | st.builds(_changed, st.integers(0, 54), st.characters()))
@settings(max_examples=examples(200))
def test_what_is_accepted_is_said_again_letter_by_letter(text: str) -> None:
    cleaned = traceparent.cleaned(text)
    assert cleaned in ("", text[:-2] + cleaned[-2:])
    assert traceparent.cleaned(cleaned) == cleaned
