# SPDX-License-Identifier: Apache-2.0
"""Why Prepare reads another node's slice by its name (agent/views.py).

A list waits until the server's cache has caught up with etcd.
"""

from __future__ import annotations

import os

import pytest

from bench.cluster.conftest import Plane
from bench.cluster.machine import Machine
from bench.conftest import Replay, spread

ROUNDS = int(os.environ.get("BENCH_READS", "30"))


@pytest.fixture(scope="module")
def told(plane: Plane, claim: dict[str, str]) -> dict[str, list[float]]:
    """What reading.py measured; `claim` for its nodes."""
    with Machine(plane.namespace, plane.account) as machine:
        answer: dict[str, list[float]] = machine.told("reading", ROUNDS)
        return answer


@pytest.mark.parametrize("way", ["list", "name"])
def test_slice_read(replay: Replay, told: dict[str, list[float]], way: str) -> None:
    role = {"role": "yardstick"} if way == "list" else {"role": "ours", "goal": 1.0}
    replay("read of another node's slice, cluster busy", told[way], **role, **spread(told[way]))
