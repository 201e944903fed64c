# SPDX-License-Identifier: Apache-2.0
"""The controller with many devices, objects only: from nothing, and after a restart.

The real program with its service account's rights against a local API server. BENCH_NODES is the
number of nodes, ten devices each; 1,000 for the goals, 20 in `make bench`. Two writes a device are
the least there can be: an object is made without its status.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.conftest import Replay
from tests.api import chart
from tests.api.accounts import Accounts
from tests.api.devices import condition
from tests.cluster.alone import Alone, control_plane_alone
from tests.unit.slices.samples import offer
from usbdra.kube.client import KubeClient
from usbdra.kube.custom import Contract
from usbdra.kube.types import NODE, RESOURCE_SLICE, Object
from usbdra.kube.watch import Reflector
from usbdra.slices.build import SliceOptions, Visibility, build

NODES = int(os.environ.get("BENCH_NODES", "20"))
DEVICES = 10
NUSB = Contract(chart.GROUP).node_device
GROUP = f"controller, {NODES * DEVICES} devices on {NODES} nodes"
PORT = "18081"
AT_ONCE = 16
LIMIT_SECONDS = 900.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Alone]:
    """A control plane with the kinds and the controller's account."""
    with control_plane_alone() as alone, chart.installed(alone.api, only=is_wanted):
        yield alone


def is_wanted(item: chart.Manifest) -> bool:
    kinds = ("CustomResourceDefinition",)
    return item["kind"] in kinds or item["metadata"]["name"] == "usbdra-controller"


def slice_of(node: int, product: str = "DataTraveler 3.0") -> Object:
    """The devices of one node; `product` changes all of them."""
    offers = [offer(f"usb-0951-1666-{node:04d}x{n}", product=product) for n in range(DEVICES)]
    options = SliceOptions(node=f"n{node:04d}", visibility=Visibility.NODE)
    found: Object = build(offers, {}, options)[0]
    return found


async def in_turns(work: Iterator[Awaitable[Any]]) -> None:
    async def one() -> None:
        for step in work:
            await step

    await asyncio.gather(*(one() for _ in range(AT_ONCE)))


async def all_shown(admin: KubeClient, done: Callable[[Object], bool], count: int) -> None:
    """Wait until so many NodeUSBDevices are as wanted."""
    reflector, good = Reflector(admin, NUSB), set()
    async with asyncio.timeout(LIMIT_SECONDS), aclosing(reflector.run()) as news:
        async for change in news:
            key, item = getattr(change, "key", None), getattr(change, "new", None)
            if item is not None and done(item):
                good.add(key)
            if len(good) >= count:
                return


@asynccontextmanager
async def running(kubeconfig: Path) -> AsyncIterator[int]:
    """The controller's process id."""
    words = ("--kubeconfig", str(kubeconfig), "--namespace", chart.NAMESPACE)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "usbdra", "controller", *words, "--health-port", PORT,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process.pid
    finally:
        process.terminate()
        await process.wait()


def cost(pid: int) -> dict[str, float]:
    """Peak resident memory and time on a CPU so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0])
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(words[11]) + int(words[12])
    cpu = ticks / os.sysconf("SC_CLK_TCK")
    return {"peak_mib": round(peak / 1024), "cpu_s": round(cpu, 1)}


async def measure(cluster: Alone) -> dict[str, tuple[float, dict[str, float]]]:
    """Seconds and cost by phase."""
    admin = await KubeClient.connect(cluster.plane.admin_kubeconfig, timeout=60.0)
    token = Accounts(cluster, cluster.folder).token(chart.NAMESPACE, "usbdra-controller")
    kubeconfig = cluster.folder / "controller.kubeconfig"
    kubeconfig.write_text(cluster.plane.token_kubeconfig(token))
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    nodes = ({"metadata": {"name": f"n{n:04d}"}, "status": ready} for n in range(NODES))
    try:
        await in_turns(admin.create(NODE, node) for node in nodes)
        await in_turns(admin.create(RESOURCE_SLICE, slice_of(n)) for n in range(NODES))
        begun = time.monotonic()
        async with running(kubeconfig) as pid:
            await all_shown(admin, lambda item: bool(condition(item, "Ready")[1]), NODES * DEVICES)
            cold = time.monotonic() - begun, cost(pid)
        name = slice_of(0)["metadata"]["name"]
        stored = await admin.get(RESOURCE_SLICE, name)
        await admin.replace(RESOURCE_SLICE, {**stored, "spec": slice_of(0, "Other")["spec"]})
        begun = time.monotonic()
        async with running(kubeconfig) as pid:
            await all_shown(
                admin, lambda i: i["status"]["attributes"]["product"] == "Other", DEVICES
            )
            again = time.monotonic() - begun, cost(pid)
    finally:
        await admin.aclose()
    return {"cold": cold, "again": again}


def test_many_devices(cluster: Alone, replay: Replay) -> None:
    found = asyncio.run(measure(cluster))
    (seconds, spent), (restart, spent_again) = found["cold"], found["again"]
    replay(
        GROUP,
        [seconds],
        goal_cold_seconds=60,
        cold_seconds=round(seconds, 1),
        goal_peak_mib=300,
        **spent,
        restart_to_first_change_s=round(restart, 1),
        restart_peak_mib=spent_again["peak_mib"],
        restart_cpu_s=spent_again["cpu_s"],
    )
