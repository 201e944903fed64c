# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks make of their numbers."""

from __future__ import annotations

from typing import Any

import pytest

from bench.conftest import spread
from bench.run import ratios, within_limits


def bench(name: str, median: float, **info: Any) -> dict[str, Any]:
    return {"group": "g", "name": name, "stats": {"median": median}, "extra_info": info}


def test_each_result_is_divided_by_the_yardstick_of_its_group() -> None:
    yardstick, cost, speedup = ratios(
        [
            bench("plain", 2.0, role="yardstick"),
            bench("ours", 3.0, goal=1.3),
            bench("fast", 0.5, goal=3, wants="at least"),
        ]
    )
    assert (yardstick["ratio"], yardstick["met"]) == (1.0, None)
    assert (cost["ratio"], cost["met"]) == (1.5, False)
    assert (speedup["ratio"], speedup["met"]) == (4.0, True)


def test_a_measurement_beside_its_goal_is_judged() -> None:
    (row,) = ratios([bench("plug", 0.05, p99_ms=120.0, goal_p99_ms=100, samples=8)])
    assert row["met"] is False
    assert row["more"] == {"p99_ms": 120.0, "goal_p99_ms": 100, "samples": 8}


def test_a_missed_ratio_is_not_mended_by_a_measurement() -> None:
    rows = ratios([bench("y", 1.0, role="yardstick"), bench("x", 9.0, goal=2, a=1, goal_a=1)])
    assert rows[1]["met"] is False


@pytest.mark.parametrize(
    ("info", "met"),
    [
        ({}, None),
        ({"goal_native_ms": 10}, None),
        ({"a": 1, "goal_a": 1}, True),
        ({"a": 1, "goal_a": 1, "b": 3, "goal_b": 2}, False),
    ],
)
def test_limits(info: dict[str, Any], met: bool | None) -> None:
    assert within_limits(info) is met


def test_percentiles_of_samples() -> None:
    found = spread([n / 1000 for n in range(1, 201)])
    assert found == {"samples": 200, "p50_ms": 100.5, "p99_ms": 198.0, "max_ms": 200.0}


def test_of_few_samples_p99_is_the_worst() -> None:
    assert spread([0.3, 0.1, 0.2])["p99_ms"] == 300.0
