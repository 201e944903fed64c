# SPDX-License-Identifier: Apache-2.0
"""The rig at its sizes, one after the other, each with a controller that began with nothing."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.cluster.controlling import all_shown, cost, running
from bench.scale.population import DEVICES
from bench.scale.rig import CONTROLLER, Rig, Spoken, rig
from tests.api.devices import condition
from usbdra.kube.types import Object

SIZES = [int(word) for word in os.environ.get("SCALE_NODES", "10,30,100,300").split(",")]
WIDE = int(os.environ.get("SCALE_WIDE", "100"))
"""The largest of them whose devices are shown to all nodes too."""
SECONDS = 7200
"""The limit of one benchmark: 5,000 nodes are 40,000 objects, each two writes."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Time limits; and no devices that all nodes see in clusters larger than SCALE_WIDE."""
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.api)
        item.add_marker(pytest.mark.timeout(SECONDS))
    small = {f"[{nodes}-nodes]" for nodes in SIZES if nodes <= WIDE}
    for item in ours:
        name, bracket, size = item.name.partition("[")
        if name == "test_all_nodes_see" and bracket + size not in small:
            items.remove(item)
            config.hook.pytest_deselected(items=[item])


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """The rig, without nodes."""
    with rig(tmp_path_factory.mktemp("audit")) as made:
        yield made


@dataclass(frozen=True)
class Sized:
    """A cluster of so many simulated nodes."""

    rig: Rig
    nodes: int

    @property
    def devices(self) -> int:
        """Of all of them."""
        return self.nodes * DEVICES


@dataclass(frozen=True)
class Controlled(Sized):
    """The same with a controller that runs, and what it took to show all devices."""

    pid: int
    seconds: float
    spent: dict[str, float]
    spoken: Spoken


@pytest.fixture(scope="session", params=SIZES, ids=lambda n: f"{n}-nodes")
def sized(everything: Rig, request: pytest.FixtureRequest) -> Sized:
    """At each size, smallest first."""
    nodes: int = request.param
    everything.run(everything.population.grow(nodes))
    return Sized(everything, nodes)


@pytest.fixture(scope="session")
def cluster(sized: Sized) -> Iterator[Controlled]:
    """With a controller."""
    rig, stack = sized.rig, AsyncExitStack()
    try:
        yield rig.run(stack.enter_async_context(controlled(rig, sized.nodes)))
    finally:
        rig.run(stack.aclose())


@asynccontextmanager
async def controlled(made: Rig, nodes: int) -> AsyncIterator[Controlled]:
    """A controller that has made every device's object, from nothing."""

    def shown(item: Object) -> bool:
        return bool(condition(item, "Ready")[1]) and item["status"]["nodeName"].startswith("n")

    await made.forget_agent()
    await made.forget_objects()
    ear, kubeconfig = made.ear(CONTROLLER), made.kubeconfig
    begun = time.monotonic()
    async with running(kubeconfig) as pid:
        await all_shown(made.admin, shown, nodes * DEVICES)
        seconds = time.monotonic() - begun
        spent = cost(pid)
        yield Controlled(made, nodes, pid, seconds, spent, await ear.heard())
