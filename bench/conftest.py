# SPDX-License-Identifier: Apache-2.0
"""What benchmarks share whose times are taken elsewhere: in a node, or in another process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

Replay = Callable[..., None]


class Clock:
    """Stands still but for what `advance` adds."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def replay(benchmark: BenchmarkFixture, monkeypatch: pytest.MonkeyPatch) -> Replay:
    """replay(group, seconds, **extra_info): the benchmark took these times."""

    def run(group: str, seconds: list[float], **info: Any) -> None:
        clock, left = Clock(), iter(seconds)
        monkeypatch.setattr(benchmark, "_timer", clock)
        benchmark.group = group
        benchmark.extra_info.update(info)
        pedantic: Callable[..., Any] = benchmark.pedantic
        pedantic(lambda: clock.advance(next(left)), rounds=len(seconds))

    return run


def in_turn(
    works: Mapping[str, Callable[[], object]], *, rounds: int, calls: int
) -> dict[str, list[float]]:
    """Seconds of one call of each, by round. In a round each is called `calls` times, one after
    the other, so that a machine that gets slower meanwhile is slower for all of them."""
    took: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            started = time.perf_counter()
            for _ in range(calls):
                work()
            took[name].append((time.perf_counter() - started) / calls)
    return took


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Samples, median, 99th percentile and worst, in ms; p99 of few samples is their worst."""
    ordered = sorted(seconds)
    rank = max(0, -(-99 * len(ordered) // 100) - 1)
    return {
        "samples": len(ordered),
        "p50_ms": round(statistics.median(ordered) * 1e3, 1),
        "p99_ms": round(ordered[rank] * 1e3, 1),
        "max_ms": round(ordered[-1] * 1e3, 1),
    }


KERNEL = ("exporter.bind", "enumerate", "settle")
"""Phases of an attach in which kernels work and we wait."""


def our_part(prepared: Mapping[str, float], attached: Mapping[str, float]) -> float:
    """Seconds of one Prepare without the phases of the kernels; both as the agent logs them."""
    return (prepared["total"] - sum(attached[phase] for phase in KERNEL)) / 1e3
