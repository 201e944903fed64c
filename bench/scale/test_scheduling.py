# SPDX-License-Identifier: Apache-2.0
"""How long the scheduler takes for a pod that claims an assigned device, by the cluster's size.

Goal: an unpinned pod within 0.3 s at 1,000 nodes and 8,000 assigned devices that their own node
sees. Where all nodes see them each pod pays for every device at every node it tries; sizes above
SCALE_WIDE are left out there, a pod takes a minute at 1,000 nodes.
"""

from __future__ import annotations

import asyncio
import os

from bench.cluster.controlling import cpu_seconds
from bench.conftest import Replay, spread
from bench.scale.conftest import Sized
from bench.scale.following import following
from bench.scale.pods import seconds_to_place
from bench.scale.population import SPACE, claim, devices, node_name
from usbdra.kube.types import POD, RESOURCE_CLAIM
from usbdra.slices.build import Visibility

PODS = int(os.environ.get("SCALE_PODS", "10"))
WIDE_PODS = 2
SECONDS = 600.0
"""The limit for one pod."""
GOAL_MS = 300
SETTLE = 2.0
"""Seconds that the scheduler has to read what was written for it."""


async def placed(sized: Sized, count: int, visibility: Visibility) -> tuple[list[float], float]:
    """Seconds of so many pods, one after the other, each for another device of another node.

    One more goes before them, pinned to a node: what it waits for is not in their times. With them,
    how many ms on a CPU each cost the scheduler.
    """
    rig, seconds, before = sized.rig, [], 0.0
    chosen = rig.unused.take(sized.nodes, count + 1)
    wanted = [devices(node, visibility)[number] for node, number in chosen]
    await asyncio.sleep(SETTLE)
    async with following(rig.admin, POD, SPACE) as pods:
        for number, device in enumerate(wanted):
            made = claim(device)
            name = made["metadata"]["name"]
            if visibility is not Visibility.NODE:  # the others are there since the node is
                await rig.admin.create(RESOURCE_CLAIM, made, SPACE)
            node = "" if number else node_name(0)
            seconds.append(await seconds_to_place(rig.admin, pods, name, SECONDS, node))
            before = before or cpu_seconds(rig.scheduler)
    return seconds[1:], (cpu_seconds(rig.scheduler) - before) * 1e3 / count


def test_own_node_sees(sized: Sized, replay: Replay) -> None:
    seconds, cpu_ms = sized.rig.run(placed(sized, PODS, Visibility.NODE))
    replay(
        "scale: an unpinned pod, devices seen by their own node",
        seconds,
        size={"nodes": sized.nodes},
        grows={"scheduler_cpu_ms": 1},
        goal_p50_ms=GOAL_MS,
        devices=sized.devices,
        scheduler_cpu_ms=round(cpu_ms, 1),
        **spread(seconds),
    )


def test_all_nodes_see(sized: Sized, replay: Replay) -> None:
    rig = sized.rig
    rig.run(rig.population.show(Visibility.CLUSTER))
    try:
        seconds, cpu_ms = rig.run(placed(sized, WIDE_PODS, Visibility.CLUSTER))
    finally:
        rig.run(rig.population.show(Visibility.NODE))
    replay(
        "scale: an unpinned pod, devices seen by all nodes",
        seconds,
        size={"nodes": sized.nodes},
        grows={"scheduler_cpu_ms": 2},
        devices=sized.devices,
        scheduler_cpu_ms=round(cpu_ms, 1),
        **spread(seconds),
    )
