# SPDX-License-Identifier: Apache-2.0
"""`usbdra list` from start to finish on a tree of 128 devices, against an empty Python program.

Goal: at most 150 ms more than `python -c pass`. What that is as a ratio depends on the machine, so
it is worked out from pairs taken in turn; `extra_info` has the difference, `above_yardstick_ms`,
and that of the time on a CPU, `above_yardstick_cpu_ms`, which a busy machine changes less.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.micro.test_snapshot import grow

ROUNDS = 15
GOAL_SECONDS = 0.150
EMPTY = (sys.executable, "-c", "pass")


def start(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def cpu_clock() -> float:
    """Seconds on a CPU of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def taken(*command: str) -> tuple[float, float]:
    """Seconds by the wall clock and on a CPU."""
    started, cpu = time.perf_counter(), cpu_clock()
    start(*command)
    return time.perf_counter() - started, cpu_clock() - cpu


def test_empty_program(benchmark: BenchmarkFixture) -> None:
    benchmark.group = "start of the command line"
    benchmark.extra_info["role"] = "yardstick"
    pedantic: Callable[..., Any] = benchmark.pedantic
    pedantic(start, args=EMPTY, rounds=ROUNDS, warmup_rounds=1)


@pytest.mark.parametrize("command", ["version", "list"])
def test_command(benchmark: BenchmarkFixture, tmp_path: Path, command: str) -> None:
    grow(tmp_path, 128)
    full: tuple[str, ...] = (sys.executable, "-m", "usbdra", command, "-o", "json")
    if command == "list":
        full = (*full, "--root", str(tmp_path))
    benchmark.group = "start of the command line"
    pedantic: Callable[..., Any] = benchmark.pedantic
    pedantic(start, args=full, rounds=ROUNDS, warmup_rounds=1)
    pairs = [(taken(*full), taken(*EMPTY)) for _ in range(ROUNDS)]  # taken in turn
    for index, key in enumerate(("above_yardstick_ms", "above_yardstick_cpu_ms")):
        above = statistics.median(ours[index] - empty[index] for ours, empty in pairs)
        benchmark.extra_info[key] = round(above * 1e3, 1)
    empty_seconds = statistics.median(empty[0] for _, empty in pairs)
    benchmark.extra_info["goal"] = round(1 + GOAL_SECONDS / empty_seconds, 2)
