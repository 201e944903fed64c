# SPDX-License-Identifier: Apache-2.0
"""What all agents' watches together cost the API server, for each plug somewhere in the cluster.

Each event is held against each watch of its kind: that is in proportion to the nodes, whatever they
select, and must be little. With as many agents' watches as there are nodes, beside none.
"""

from __future__ import annotations

import asyncio
import time

from bench.cluster.controlling import cpu_seconds
from bench.conftest import Replay
from bench.scale.conftest import Controlled

PLUGS = 40
SETTLE = 2.0


def plugs(cluster: Controlled) -> tuple[list[float], float]:
    """Seconds of each slice's write, and seconds on a CPU of the API server for all of them."""
    rig, seconds = cluster.rig, []
    before = cpu_seconds(rig.apiserver)
    for step in range(PLUGS):
        number = step * 7919 % cluster.nodes
        stick = rig.population.new_stick(number)
        begun = time.perf_counter()
        rig.run(rig.population.publish(number, stick))
        seconds.append(time.perf_counter() - begun)
    rig.run(asyncio.sleep(SETTLE))
    return seconds, cpu_seconds(rig.apiserver) - before


def test_agents_watches(cluster: Controlled, replay: Replay) -> None:
    rig = cluster.rig
    _, alone = plugs(cluster)
    with rig.watchers(cluster.nodes) as told:
        seconds, watched = plugs(cluster)
    replay(
        "scale: a plug under the watches of all agents",
        seconds,
        size={"nodes": cluster.nodes},
        grows={"api_server_cpu_ms": 1},
        api_server_cpu_ms=round(watched * 1e3 / PLUGS, 2),
        without_agents_ms=round(alone * 1e3 / PLUGS, 2),
        told_a_plug=round(told["slices"] / PLUGS, 2),
    )
    assert told["slices"] == PLUGS
