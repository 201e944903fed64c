# SPDX-License-Identifier: Apache-2.0
"""What an agent asks and hears, by the cluster's size: it must not grow with it.

One real agent of the cluster, on a made-up machine with eight devices. The yardstick is a watch of
every ResourceSlice, as an agent that selects nothing would have one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator

import pytest

from bench.cluster.machine import NODE, Machine, Uevents
from bench.conftest import Replay, spread
from bench.scale.conftest import Controlled
from bench.scale.following import following
from bench.scale.population import DEVICES, NAMES
from bench.scale.requests import watched, writes
from bench.scale.rig import AGENT, Spoken
from usbdra.kube.types import RESOURCE_SLICE, Object

OTHERS = 10
"""Plugs elsewhere."""
PLUGS = 3
PAUSE = 2.2
"""Seconds between plugs: longer than an agent waits between two writes."""
BUS = 100
FLAGS = ("--visibility=Node", "--assignment=Required")
LIMIT_SECONDS = 60.0


@pytest.fixture(scope="session")
def machine(cluster: Controlled) -> Iterator[Machine]:
    """A new one for each size; its devices are seen by its own node, as the others'."""
    with cluster.rig.machine() as made:
        made.grow(DEVICES)
        yield made


@pytest.fixture(scope="session")
def begun(cluster: Controlled, machine: Machine) -> tuple[float, Spoken]:
    """Its start until its devices are published, and what it said and heard for that."""
    ear, started = cluster.rig.ear(AGENT), time.perf_counter()
    machine.start(flags=FLAGS)
    machine.wait_published()
    seconds = time.perf_counter() - started
    return seconds, cluster.rig.run(ear.heard())


def test_start(cluster: Controlled, replay: Replay, begun: tuple[float, Spoken]) -> None:
    seconds, spoken = begun
    replay(
        "scale: an agent's start",
        [seconds],
        size={"nodes": cluster.nodes},
        grows={"bytes_heard": 0, "requests": 0},
        bytes_sent=spoken.there,
        bytes_heard=spoken.back,
        requests=len(spoken.requests),
    )


def test_selectors(begun: tuple[float, Spoken], replay: Replay) -> None:
    """Every list and watch is of this node's objects, or of one by its name; claims are read."""
    seconds, spoken = begun
    asked = watched(spoken.requests)
    replay("scale: what an agent watches", [seconds], **{k: sorted(v) for k, v in asked.items()})
    assert asked["resourceslices"] == {
        f"app.kubernetes.io/managed-by=usbdra,{NAMES.driver}/node={NODE}"
    }
    assert asked["nodeusbdevices"] == {f"status.nodeName={NODE}"}
    assert "resourceclaims" not in asked
    assert all(NODE in selector for found in asked.values() for selector in found)


def test_plugs_elsewhere(
    cluster: Controlled, machine: Machine, begun: tuple[float, Spoken], replay: Replay
) -> None:
    """What the agent hears while other nodes' devices come: nothing of it."""
    rig, ear, seconds = cluster.rig, cluster.rig.ear(AGENT), []
    with rig.observer() as told:
        before = told()
        for number in range(1, OTHERS + 1):
            started = time.perf_counter()
            node = number % cluster.nodes
            rig.run(rig.population.publish(node, rig.population.new_stick(node)))
            seconds.append(time.perf_counter() - started)
        spoken: Spoken = rig.run(ear.heard())
        all_told = told() - before
    for number in range(1, OTHERS + 1):
        rig.run(rig.population.publish(number % cluster.nodes))
    replay(
        "scale: an agent and the plugs of other nodes",
        seconds,
        size={"nodes": cluster.nodes},
        grows={"bytes_heard_a_plug": 0},
        bytes_heard_a_plug=round(spoken.back / OTHERS),
        by_a_watch_of_all_slices=round(all_told / OTHERS),
        requests=len(spoken.requests),
    )


def test_own_plug(
    cluster: Controlled, machine: Machine, begun: tuple[float, Spoken], replay: Replay
) -> None:
    """From the kernel's event to the slice that shows the device, and what it costs."""
    seconds, spoken = cluster.rig.run(plugged(cluster, machine))
    made = writes(spoken.requests)
    replay(
        "scale: an agent's own plug",
        seconds,
        size={"nodes": cluster.nodes},
        grows={"bytes_heard_a_plug": 0, "writes_a_plug": 0},
        **spread(seconds),
        writes_a_plug=round(made["update resourceslices"] / PLUGS, 2),
        bytes_sent_a_plug=round(spoken.there / PLUGS),
        bytes_heard_a_plug=round(spoken.back / PLUGS),
    )


async def plugged(cluster: Controlled, machine: Machine) -> tuple[list[float], Spoken]:
    """Seconds of each plug, and what was said and heard for them."""
    controller = machine.tree.controller("0000:64:14.0")
    hub = controller.root_hub(BUS + len(list(controller.path.iterdir())))
    listed = await cluster.rig.admin.list(RESOURCE_SLICE, fields=f"spec.nodeName={NODE}")
    (name,) = (
        item["metadata"]["name"]
        for item in listed["items"]
        if item["spec"]["pool"]["name"] == f"usb-{NODE}"
    )
    seconds = []
    with contextlib.closing(Uevents(machine.namespace)) as events:
        events.device("add", hub)
        await asyncio.sleep(PAUSE)
        ear = cluster.rig.ear(AGENT)
        async with following(cluster.rig.admin, RESOURCE_SLICE) as slices:
            for number in range(PLUGS):
                serial = f"SCALE{cluster.nodes}X{number}"
                device = hub.plug(number + 1, serial=serial.encode())
                started = time.perf_counter()
                events.device("add", device)
                await slices.until(name, has_serial(serial), LIMIT_SECONDS)
                seconds.append(time.perf_counter() - started)
                await asyncio.sleep(PAUSE)
        spoken = await ear.heard()
    return seconds, spoken


def has_serial(serial: str) -> Callable[[Object | None], bool]:
    """A slice holds the device with it."""

    def done(item: Object | None) -> bool:
        found = item["spec"].get("devices") or () if item else ()
        key = f"{NAMES.driver}/serial"
        values = (device["attributes"] for device in found)
        return any((v.get(key) or v.get("serial") or {}).get("string") == serial for v in values)

    return done
