# SPDX-License-Identifier: Apache-2.0
"""What limits a transfer, by arithmetic; which settings are told apart; what a stream came to."""

from __future__ import annotations

import pytest

from bench.throughput.model import Link, verdict
from bench.throughput.timing import Stream

MIB = 1 << 20
MEASURED = {  # 1 ms each and 8 MiB/s alone, 16 MiB/s at most
    (16384, 1): 0.001 + 16384 / (8 * MIB),
    (MIB, 1): 0.001 + 1 / 8,
    (16384, 4): 0.002,
    (MIB, 4): 1 / 16,
}


@pytest.fixture
def link() -> Link:
    return Link.of(MEASURED, "copies", trip=0.001)


def test_a_link_is_a_fixed_part_a_part_for_each_byte_and_a_best_rate(link: Link) -> None:
    assert link.fixed == pytest.approx(0.001)
    assert 1 / link.byte == pytest.approx(8 * MIB)
    assert 1 / link.best == pytest.approx(16 * MIB)


def test_one_transfer_waits_for_its_round_trip(link: Link) -> None:
    limit = link.limit(16384, 1, 0.020)
    assert limit.seconds == pytest.approx(0.020 + 0.001 + 16384 / (8 * MIB))
    assert limit.name == "round trip"


def test_four_transfers_share_a_round_trip(link: Link) -> None:
    assert link.limit(16384, 4, 0.020).seconds == link.limit(16384, 1, 0.020).seconds / 4


def test_large_transfers_are_limited_by_what_comes_through(link: Link) -> None:
    limit = link.limit(MIB, 4, 0.001)
    assert limit.seconds == pytest.approx(1 / 16)
    assert limit.name == "copies"


def test_without_a_delay_one_transfer_is_limited_by_its_own_work(link: Link) -> None:
    assert link.limit(16384, 1, 0.0).name == "work of each"


def test_losses_make_a_window_of_some_segments_a_round_trip(link: Link) -> None:
    limit = link.limit(65536, 4, 0.019, 0.01)
    # 1448 bytes * sqrt(1.5) / sqrt(0.01) = 17.7 KB each 20 ms
    assert limit.seconds == pytest.approx(65536 / 17734 * 0.020, rel=1e-3)
    assert limit.name == "loss"


def test_a_setting_is_told_from_ours_when_no_round_is_among_ours() -> None:
    ours = [1.0, 1.2, 1.1]
    assert verdict([0.7, 0.9, 0.8], ours) == "faster"
    assert verdict([1.3, 2.0, 1.5], ours) == "slower"
    assert verdict([0.7, 1.0, 0.8], ours) == "no difference"
    assert verdict([1.05, 1.06, 1.04], [1.0, 1.01, 1.02]) == "no difference"


def test_a_stream_is_judged_by_the_time_it_would_play() -> None:
    stream = Stream(packets=32, lost=0, short=0, gaps=[0.008, 0.008, 0.016, 0.008])
    assert stream.rate == pytest.approx(32 / 40)
