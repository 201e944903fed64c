# SPDX-License-Identifier: Apache-2.0
"""Bulk transfers in plain and encrypted where AES is in hardware: what encryption costs there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.micro.aes import RATES, TRANSFER, has_aes, reader

MOVED = 4 * 2**20
GOAL = 1 / 0.9
"""Encrypted throughput is at least 0.9 of plain."""


@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize("speed", RATES)
def test_transfers(benchmark: BenchmarkFixture, speed: str, encrypted: bool, depth: int) -> None:
    benchmark.group = f"{speed}, {TRANSFER // 1024} KiB x {depth}, natively"
    transfers = MOVED // TRANSFER
    if not encrypted:
        benchmark.extra_info["role"] = "yardstick"
    elif has_aes():
        benchmark.extra_info["goal"] = GOAL
    with reader(encrypted, RATES[speed], depth) as one:
        one.read(transfers)
        pedantic: Callable[..., None] = benchmark.pedantic
        pedantic(one.read, args=(transfers,), rounds=15)
    stats: Any = benchmark.stats
    rate = MOVED / 2**20 / stats.stats.median
    benchmark.extra_info["mib_per_s"] = round(rate, 1)
