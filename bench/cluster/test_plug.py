# SPDX-License-Identifier: Apache-2.0
"""From a plug to the slice: the real agent, a local API server, uevents by the kernel.

Goal: p99 under 100 ms for a device that is plugged in while nothing else happens. The agent waits
20 ms for what else comes with it; while changes do not end it saves the API server writes, at most
one each 2 s, which is why rounds are more than 2 s apart.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from bench.cluster.conftest import Plane
from bench.cluster.machine import Machine, scheduled
from bench.conftest import Replay, spread

PLUGS = int(os.environ.get("BENCH_PLUGS", "6"))
PAUSE = 2.1
READS = 100
GROUP = "from a plug to the slice"
DEVICES = 16


@pytest.fixture(scope="module")
def busy(plane: Plane) -> Iterator[Machine]:
    """A machine with an agent that has published 16 devices."""
    with Machine(plane.namespace, plane.account) as machine:
        machine.grow(DEVICES)
        machine.start()
        machine.wait_published()
        yield machine


def test_one_device(replay: Replay, busy: Machine) -> None:
    """With what each plug costs the agent, the pulls between them included."""
    before = scheduled(busy.pid)
    found = busy.told("plugs", busy.root, PLUGS, 1, PAUSE)
    ran, waited = (b - a for a, b in zip(before, scheduled(busy.pid), strict=True))
    agent = {
        "agent_cpu_ms": round(ran * 1e3 / PLUGS, 1),
        "agent_waited_for_cpu_ms": round(waited * 1e3 / PLUGS, 1),
    }
    replay(GROUP, found["seconds"], goal_p99_ms=100, **spread(found["seconds"]), **agent)


def test_hub_of_eight(replay: Replay, busy: Machine) -> None:
    """Eight devices at once, until the last is seen; they should cost few writes."""
    rounds = max(PLUGS // 8, 2)
    found = busy.told("plugs", busy.root, rounds, 8, PAUSE)
    writes = round(found["writes"] / rounds, 2)
    replay(GROUP, found["seconds"], writes_a_round=writes, **spread(found["seconds"]))


def test_read_of_an_object(replay: Replay, busy: Machine) -> None:
    """One GET on a connection that is open, as Prepare makes two."""
    seconds = busy.told("reads", READS)
    replay("a read from the API server", seconds, **spread(seconds))
