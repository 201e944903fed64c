# SPDX-License-Identifier: Apache-2.0
"""What it costs the node that has a device to decide whether another may have it.

Goals: one read of the API server for a node that has used a device of ours lately, and 5 ms. The
yardstick is that read alone, by the same client in the same run: what is above it is ours.
"""

from __future__ import annotations

import os
import statistics
from typing import Any

import pytest

from bench.cluster.conftest import Plane
from bench.cluster.machine import Machine
from bench.conftest import Replay, spread

ROUNDS = int(os.environ.get("BENCH_DECISIONS", "100"))
GROUP = "the exporting node's decision about one request"
READS = {"read": 0, "known": 1, "stranger": 2}
"""Requests to the API server that are counted; the yardstick's own is not."""

Told = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def told(plane: Plane, claim: dict[str, str]) -> Told:
    """What authorise.py measured."""
    with Machine(plane.namespace, plane.account) as machine:
        words = (claim["namespace"], claim["name"], claim["uid"], ROUNDS)
        answer: Told = machine.told("authorise", machine.root / "memory", *words)
        return answer


@pytest.mark.parametrize("way", READS)
def test_decision(replay: Replay, told: Told, way: str) -> None:
    """Each request it made was a read: of the claim, and for a stranger of its Node."""
    assert {len(sample["requests"]) for sample in told[way]} == {READS[way]}
    seconds = [sample["seconds"] for sample in told[way]]
    role = "yardstick" if way == "read" else "ours"
    goals = {"reads": 1, "goal_reads": 1, "goal_p50_ms": 5} if way == "known" else {}
    cpu = round(statistics.median(sample["cpu"] for sample in told[way]) * 1e3, 2)
    replay(GROUP, seconds, role=role, cpu_ms=cpu, **goals, **spread(seconds))
