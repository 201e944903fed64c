# SPDX-License-Identifier: Apache-2.0
"""`usbdra list` from start to finish on a tree of 128 devices, against an empty Python program.

Goal: at most 150 ms more than `python -c pass`. What that is as a ratio depends on the machine, so
it is worked out from pairs taken in turn; `extra_info` has the difference, `above_yardstick_ms`.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.micro.test_snapshot import grow

ROUNDS = 15
GOAL_SECONDS = 0.150
EMPTY = (sys.executable, "-c", "pass")


def start(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def seconds(*command: str) -> float:
    started = time.perf_counter()
    start(*command)
    return time.perf_counter() - started


def test_empty_program(benchmark: BenchmarkFixture) -> None:
    benchmark.group = "start of the command line"
    benchmark.extra_info["role"] = "yardstick"
    benchmark.pedantic(start, args=EMPTY, rounds=ROUNDS, warmup_rounds=1)


@pytest.mark.parametrize("command", ["version", "list"])
def test_command(benchmark: BenchmarkFixture, tmp_path: Path, command: str) -> None:
    grow(tmp_path, 128)
    full = (sys.executable, "-m", "usbdra", command, "-o", "json")
    if command == "list":
        full = (*full, "--root", str(tmp_path))
    benchmark.group = "start of the command line"
    benchmark.pedantic(start, args=full, rounds=ROUNDS, warmup_rounds=1)
    pairs = [(seconds(*full), seconds(*EMPTY)) for _ in range(ROUNDS)]  # taken in turn
    above = statistics.median(ours - empty for ours, empty in pairs) * 1e3
    benchmark.extra_info["above_yardstick_ms"] = round(above, 1)
    empty = statistics.median(empty for _, empty in pairs)
    benchmark.extra_info["goal"] = round(1 + GOAL_SECONDS / empty, 2)
