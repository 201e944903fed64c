# SPDX-License-Identifier: Apache-2.0
"""Bulk transfers in plain and encrypted where AES is in hardware: what encryption costs there.

Both in turn, over a connection of this machine and over one of two machines beside each other.
"""

from __future__ import annotations

import statistics

import pytest

from bench.conftest import Replay, in_turn
from bench.micro.aes import NEAR, RATES, TRANSFER, has_aes, reader

MOVED = 1 << 20
GOAL = 1 / 0.9
"""Encrypted throughput is at least 0.9 of plain."""
ROUNDS = 40

Taken = dict[str, list[float]]


@pytest.fixture(scope="module", params=RATES)
def speed(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=[0.0, NEAR], ids=["here", "near"])
def away(request: pytest.FixtureRequest) -> float:
    return float(request.param)


@pytest.fixture(scope="module", params=[1, 4])
def depth(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def taken(speed: str, away: float, depth: int) -> Taken:
    transfers = MOVED // TRANSFER
    link = (RATES[speed], depth, away)
    with reader(False, *link) as plain, reader(True, *link) as encrypted:
        works = {
            "plain": lambda: plain.read(transfers),
            "encrypted": lambda: encrypted.read(transfers),
        }
        in_turn(works, rounds=3, calls=1)
        return in_turn(works, rounds=ROUNDS, calls=1)


@pytest.fixture
def group(speed: str, away: float, depth: int) -> str:
    near = f", {away * 1e3:g} ms away" if away else ""
    return f"{speed}, {TRANSFER // 1024} KiB x {depth}{near}, natively"


def rate(seconds: list[float]) -> float:
    """MiB/s of the median round."""
    return round(MOVED / 2**20 / statistics.median(seconds), 1)


def test_plain(replay: Replay, group: str, taken: Taken) -> None:
    replay(group, taken["plain"], role="yardstick", mib_per_s=rate(taken["plain"]))


def test_encrypted(replay: Replay, group: str, taken: Taken) -> None:
    goal = {"goal": GOAL} if has_aes() else {}
    replay(group, taken["encrypted"], **goal, mib_per_s=rate(taken["encrypted"]))
