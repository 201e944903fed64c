# SPDX-License-Identifier: Apache-2.0
"""What a link's counters come to, and when they are worth a write."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from usbdra.agent.linkrates import Numbers, Sample, numbers
from usbdra.transport.measure import Counters

BEFORE = Sample(100.0, Counters(rtt=500, sent=1_000, received=2_000, retransmits=1))
NOW = Sample(160.0, Counters(rtt=700, sent=61_000, received=2_000, retransmits=4))
BUSY = Numbers(sent=100_000, received=50_000, rtt=1_000, retransmits=0, seconds=60)


def test_rates_are_over_the_time_between() -> None:
    assert numbers(BEFORE, NOW) == Numbers(1_000, 0, 700, 3, 60)


def test_a_link_that_began_anew_has_no_rate_yet() -> None:
    assert numbers(NOW, replace(BEFORE, at=200.0)) is None
    assert numbers(BEFORE, BEFORE) is None


@pytest.mark.parametrize(
    ("changed", "worth"),
    [
        ({}, False),
        ({"sent": 120_000}, False),
        ({"sent": 130_000}, True),
        ({"received": 0}, True),
        ({"rtt": 1_200}, False),
        ({"rtt": 2_000}, True),
        ({"retransmits": 50}, False),
    ],
)
def test_a_quarter_more_or_less_is_worth_telling(changed: dict[str, Any], worth: bool) -> None:
    assert replace(BUSY, **changed).differ(BUSY) is worth


def test_the_first_numbers_are_told_and_an_idle_link_is_told_of_once() -> None:
    idle = replace(BUSY, sent=0, received=10)
    assert idle.differ(None)
    assert idle.differ(BUSY)
    assert not replace(idle, sent=900, received=0).differ(idle)


def test_the_claims_status_names_units() -> None:
    assert BUSY.data(datetime(2026, 1, 31, 12, 0, 0, 999, tzinfo=UTC)) == {
        "time": "2026-01-31T12:00:00Z",
        "seconds": 60,
        "sentBytesPerSecond": 100_000,
        "receivedBytesPerSecond": 50_000,
        "rttMicroseconds": 1_000,
        "retransmits": 0,
        "encrypted": False,
    }
