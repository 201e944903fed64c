# SPDX-License-Identifier: Apache-2.0
"""What a cluster costs the controller, by its size: from nothing, a plug, an assignment.

SCALE_NODES is a list of sizes in nodes, eight devices each. `grows` says what each cost may grow
with; bench/growth.py fits it over the sizes and judges.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from bench.cluster.controlling import NUSB, cpu_seconds
from bench.conftest import Replay, spread
from bench.scale.conftest import Controlled
from bench.scale.following import Following, following
from bench.scale.population import PREFIX, SPACE, stick
from bench.scale.requests import writes
from bench.scale.rig import CONTROLLER
from tests.api.devices import has

PLUGS = int(os.environ.get("SCALE_PLUGS", "10"))
LEASES = "leases"
What = TypeVar("What")


async def timed(
    cluster: Controlled, act: Callable[[Following, What], Awaitable[None]], each: Sequence[What]
) -> list[float]:
    """Seconds of `act` for each, one after the other; it is given a watch of NodeUSBDevices."""
    seconds = []
    async with following(cluster.rig.admin, NUSB) as objects:
        for one in each:
            begun = time.perf_counter()
            await act(objects, one)
            seconds.append(time.perf_counter() - begun)
    return seconds


def test_controller_from_nothing(cluster: Controlled, replay: Replay) -> None:
    """Until every device has its object with its state: two writes each are the least."""
    found, spoken = cluster.spent, cluster.spoken
    made = writes(r for r in spoken.requests if r.name.startswith(PREFIX))
    replay(
        "scale: the controller, from nothing",
        [cluster.seconds],
        size={"nodes": cluster.nodes},
        grows={"cpu_s": 1, "peak_mib": 1, "writes": 1, "bytes_sent": 1},
        devices=cluster.devices,
        **found,
        writes=made.total(),
        writes_a_device=round(made.total() / cluster.devices, 2),
        bytes_sent=spoken.there,
        bytes_heard=spoken.back,
    )
    assert made["patch nodeusbdevices"] >= cluster.devices
    assert made["patch nodeusbdevices/status"] >= cluster.devices


def test_plug(cluster: Controlled, replay: Replay) -> None:
    """From the slice's write to the device's object; one node after the other."""
    rig, ear, before = cluster.rig, cluster.rig.ear(CONTROLLER), cpu_seconds(cluster.pid)
    numbers = [step * 7919 % cluster.nodes for step in range(PLUGS)]

    async def plug(objects: Following, number: int) -> None:
        device = rig.population.new_stick(number)
        await rig.population.publish(number, device)
        await objects.until(device.name, has("Ready", "Ready"))

    seconds = rig.run(timed(cluster, plug, numbers))
    spoken, spent = rig.run(ear.heard()), cpu_seconds(cluster.pid) - before
    for number in numbers:
        rig.run(rig.population.publish(number))
    made = writes(spoken.requests, LEASES)
    replay(
        "scale: a plug, from its slice to its object",
        seconds,
        size={"nodes": cluster.nodes},
        grows={"writes_a_plug": 0, "bytes_heard_a_plug": 0},
        **spread(seconds),
        writes_a_plug=made.total() / PLUGS,
        bytes_sent_a_plug=round(spoken.there / PLUGS),
        bytes_heard_a_plug=round(spoken.back / PLUGS),
        controller_cpu_ms=round(spent * 1e3 / PLUGS, 1),
    )
    assert made["patch nodeusbdevices"] == made["patch nodeusbdevices/status"] == PLUGS


def test_assignment(cluster: Controlled, replay: Replay) -> None:
    """From the administrator's word to the device's claim and template in a namespace."""
    rig, ear = cluster.rig, cluster.rig.ear(CONTROLLER)
    names = [stick(n, d).name for n, d in rig.unused.take(cluster.nodes, PLUGS)]

    async def assign(objects: Following, name: str) -> None:
        await rig.admin.merge(NUSB, name, {"spec": {"assignedNamespace": SPACE}})
        await objects.until(name, has("Assigned", "Assigned"))

    async def take_back(objects: Following, name: str) -> None:
        await rig.admin.merge(NUSB, name, {"spec": {"assignedNamespace": ""}})
        await objects.until(name, has("Assigned", "Available"))

    seconds = rig.run(timed(cluster, assign, names))
    spoken = rig.run(ear.heard())
    rig.run(timed(cluster, take_back, names))
    made = writes(spoken.requests, LEASES)
    replay(
        "scale: an assignment",
        seconds,
        size={"nodes": cluster.nodes},
        grows={"writes_an_assignment": 0},
        **spread(seconds),
        writes_an_assignment=made.total() / PLUGS,
        **{what.replace(" ", "_"): count / PLUGS for what, count in sorted(made.items())},
        bytes_sent_an_assignment=round(spoken.there / PLUGS),
    )
    assert sum(count for what, count in made.items() if what.endswith(" resourceclaims")) == PLUGS
