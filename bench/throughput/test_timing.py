# SPDX-License-Identifier: Apache-2.0
"""A keyboard and a sound card on a slow network: latency and jitter."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import pytest

from bench.conftest import Replay, spread
from bench.throughput import timing
from bench.throughput.network import DELAYS_MS
from bench.throughput.timing import PACKETS_A_SECOND, QUEUES, Keys, Stream
from tests.bed.bed import Bed

PLACES = (None, *DELAYS_MS)
IDS = ["own node", *(f"{delay:g} ms" for delay in DELAYS_MS)]


@pytest.fixture(scope="module")
def keys(bed: Bed) -> dict[float | None, Keys]:
    return timing.typed(bed)


@pytest.fixture(scope="module")
def streams(bed: Bed) -> dict[tuple[float | None, int], Stream]:
    return timing.played(bed)


@pytest.mark.parametrize("delay", PLACES, ids=IDS)
def test_key(replay: Replay, keys: dict[float | None, Keys], delay: float | None) -> None:
    """One way: from the report to the program, without the answer."""
    found = keys[delay]
    answer = statistics.median(found.datagrams) / 2
    seconds = [report - answer for report in found.reports]
    facts = {**spread(seconds), "jitter_ms": jitter_ms(seconds)}
    facts["datagram_ms"] = round(answer * 1e3, 1)
    replay("a key, one way", seconds, role=_role(delay), **facts)


@pytest.mark.parametrize("delay", PLACES, ids=IDS)
def test_burst(replay: Replay, keys: dict[float | None, Keys], delay: float | None) -> None:
    """Reports as fast as the keyboard's only waiting transfer takes them."""
    each = keys[delay].burst
    cost = "ms_a_report"
    place = {} if delay is None else {"size": {"ms": delay}, "grows": {cost: 1}}
    facts = {cost: round(each * 1e3, 3), "reports_a_second": round(1 / each)}
    replay("keys in a burst", [each], role=_role(delay), **place, **facts)


@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("delay", PLACES, ids=IDS)
def test_sound(
    replay: Replay,
    streams: dict[tuple[float | None, int], Stream],
    delay: float | None,
    queue: int,
) -> None:
    """The gaps between the ends of transfers of 8 ms; late are packets that a second had no more
    time for."""
    found = streams[delay, queue]
    seconds = sum(found.gaps)
    facts = {
        **spread(found.gaps),
        "jitter_ms": jitter_ms(found.gaps),
        "of_real_time": round(found.rate, 3),
        "lost_a_second": round(found.lost / seconds, 1),
        "short_a_second": round(found.short / seconds, 1),
        "late_a_second": round(max(1 - found.rate, 0.0) * PACKETS_A_SECOND),
    }
    replay(f"sound, {queue} transfers under way", found.gaps, role=_role(delay), **facts)


def jitter_ms(seconds: Sequence[float]) -> float:
    """What lies between the first and the last tenth."""
    tenths = statistics.quantiles(seconds, n=10)
    return round((tenths[-1] - tenths[0]) * 1e3, 1)


def _role(delay: float | None) -> str:
    return "yardstick" if delay is None else "ours"
