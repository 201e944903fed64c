# SPDX-License-Identifier: Apache-2.0
"""The word by which a reset is asked for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usbdra.errors import ConfigError
from usbdra.events import MAX_NOTE
from usbdra.resetword import make, read

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


@given(st.datetimes(timezones=st.just(UTC)), st.booleans())
def test_a_request_reads_back(at: datetime, force: bool) -> None:
    request = make(at, force)
    assert read(request.word) == request


@pytest.mark.parametrize(
    "word", ["", "now", "2026-01-31T12:00:00", "2026-01-31T12:00:00Z,", f"{NOW.isoformat()},fast"]
)
def test_anything_else_is_refused_with_its_form(word: str) -> None:
    with pytest.raises(ConfigError, match="it is a time in RFC 3339"):
        read(word)


def test_an_old_request_and_one_of_the_future_are_not_fresh() -> None:
    request = make(NOW, False)
    assert request.fresh(NOW + timedelta(minutes=9))
    assert not request.fresh(NOW + timedelta(minutes=11))
    assert not request.fresh(NOW - timedelta(minutes=11))


def test_an_answer_is_known_by_its_token_whatever_its_length() -> None:
    one, other = make(NOW, False), make(NOW + timedelta(microseconds=1), True)
    note = one.note("x" * 5000)
    assert len(note) == MAX_NOTE
    assert one.answered_by(note)
    assert not other.answered_by(note)
