# SPDX-License-Identifier: Apache-2.0
"""How a cost grows with a size: the power that fits it, and the straight line through it. Pure.

A benchmark that ran at several sizes says so in its `extra_info`: `size` is {"nodes": 100},
`grows` names its measurements that are costs and the power of the size that each may grow with,
0 for a cost that does not depend on it, 1 for one in proportion. `grown` judges them over all sizes
of one group: the power by least squares in logarithms, and that of the last step, where what is
constant hides less. Must not measure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

LEAST = 3
"""Sizes: two points fit every law."""
SLACK = 0.15
"""Of the power over all sizes: a factor of 1.4 where the largest is ten times the smallest."""
LAST_SLACK = 0.3
"""Of the power of the last step, of two measurements alone."""
SECONDS = "seconds"
"""The name under which a row's own time is a cost."""

Points = Sequence[tuple[float, float]]


def power(points: Points) -> float:
    """The exponent p of cost = c * size^p; costs of zero count as the smallest there is."""
    least = min((cost for _, cost in points if cost > 0), default=1.0)
    logs = [(math.log(size), math.log(max(cost, least))) for size, cost in points]
    return statistics.linear_regression(*zip(*logs, strict=True)).slope


def line(points: Points) -> tuple[float, float]:
    """(a, b) of cost = a + b * size by least squares."""
    fit = statistics.linear_regression(*zip(*points, strict=True))
    return fit.intercept, fit.slope


def grown(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows {group, cost, of, sizes, costs, power, last, allowed, base, each, met}.

    rows: {group, median_us, size, grows, more}, those of benchmarks that name no size left out.
    `base` and `each` are the line's, in the cost's own unit.
    """
    found: dict[tuple[str, str, str], dict[float, float]] = {}
    allowed: dict[tuple[str, str, str], float] = {}
    for row in rows:
        if not row.get("size"):
            continue
        ((of, size),) = row["size"].items()
        values = {**row["more"], SECONDS: row["median_us"] / 1e6}
        for name, most in row["grows"].items():
            key = (row["group"], name, of)
            found.setdefault(key, {})[float(size)] = float(values[name])
            allowed[key] = most
    return [
        _judged(key, sorted(costs.items()), allowed[key])
        for key, costs in found.items()
        if len(costs) >= LEAST
    ]


def _judged(key: tuple[str, str, str], points: Points, most: float) -> dict[str, Any]:
    group, name, of = key
    overall, last = power(points), power(points[-2:])
    base, each = line(points)
    return {
        "group": group,
        "cost": name,
        "of": of,
        "sizes": [size for size, _ in points],
        "costs": [cost for _, cost in points],
        "power": round(overall, 2),
        "last": round(last, 2),
        "allowed": most,
        "base": base,
        "each": each,
        "met": overall <= most + SLACK and last <= most + LAST_SLACK,
    }


def show(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print a line for each cost."""
    for row in rows:
        costs = " ".join(f"{cost:g}" for cost in row["costs"])
        sizes = " ".join(f"{size:g}" for size in row["sizes"])
        wanted = "constant" if row["allowed"] == 0 else f"{row['of']}^{row['allowed']:g}"
        print(
            f"  {row['group']}: {row['cost']} = {costs} at {sizes} {row['of']}: power "
            f"{row['power']:.2f}, last step {row['last']:.2f}, wanted {wanted} "
            f"{'met' if row['met'] else 'MISSED'}; line {row['base']:.4g} + "
            f"{row['each']:.4g} x {row['of']}"
        )
