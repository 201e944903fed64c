# SPDX-License-Identifier: Apache-2.0
"""How costs at several sizes are judged."""

from __future__ import annotations

from typing import Any

import pytest

from bench.growth import grown, line, power
from bench.run import ratios

SIZES = (10, 30, 100)


def rows(grows: dict[str, float], *costs: float, seconds: float = 1.0) -> list[dict[str, Any]]:
    benchmarks = [
        {
            "group": "g",
            "name": f"b[{size}]",
            "stats": {"median": seconds * size},
            "extra_info": {"size": {"nodes": size}, "grows": grows, "cost": cost},
        }
        for size, cost in zip(SIZES, costs, strict=False)
    ]
    return ratios(benchmarks)


@pytest.mark.parametrize(("exponent", "constant"), [(0, 5.0), (1, 0.01), (2, 3.0)])
def test_a_power_is_found(exponent: float, constant: float) -> None:
    points = [(float(size), constant * size**exponent) for size in SIZES]
    assert power(points) == pytest.approx(exponent)


def test_a_cost_that_is_nothing_at_every_size_does_not_grow() -> None:
    assert power([(size, 0.0) for size in SIZES]) == 0.0


def test_a_line_is_found() -> None:
    assert line([(size, 60 + 0.02 * size) for size in SIZES]) == pytest.approx((60, 0.02))


@pytest.mark.parametrize(
    ("allowed", "costs", "met"),
    [
        (0, (64.0, 64.0, 65.0), True),
        (0, (10.0, 30.0, 100.0), False),
        (1, (10.0, 30.0, 100.0), True),
        (1, (1.0, 9.0, 100.0), False),
        (1, (60.0, 61.0, 110.0), True),  # a line with what is constant
        (1, (60.0, 61.0, 400.0), False),  # which hides the last step's growth from the whole
    ],
)
def test_growth_is_judged(allowed: float, costs: tuple[float, ...], met: bool) -> None:
    (found,) = grown(rows({"cost": allowed}, *costs))
    assert (found["of"], found["sizes"], found["costs"]) == ("nodes", list(SIZES), list(costs))
    assert found["met"] is met


def test_a_row_s_own_time_is_a_cost() -> None:
    (found,) = grown(rows({"seconds": 1}, 0, 0, 0, seconds=0.5))
    assert (found["costs"], found["power"]) == ([5.0, 15.0, 50.0], 1.0)


def test_two_sizes_are_too_few_and_rows_without_sizes_are_none() -> None:
    assert grown(rows({"cost": 1}, 1.0, 2.0)) == []
    plain = {"group": "g", "name": "b", "stats": {"median": 1.0}, "extra_info": {}}
    assert grown(ratios([plain])) == []
