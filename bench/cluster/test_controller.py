# SPDX-License-Identifier: Apache-2.0
"""The controller with many devices, objects only: from nothing, and after a restart.

The real program with its service account's rights against a local API server. BENCH_NODES is the
number of nodes, ten devices each; 1,000 for the goals, 20 in `make bench`. Two writes a device are
the least there can be: an object is made without its status.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator

import pytest

from bench.cluster.controlling import all_shown, cost, in_turns, running
from bench.conftest import Replay
from tests.api import chart
from tests.api.accounts import Accounts
from tests.api.devices import condition
from tests.cluster.alone import Alone, control_plane_alone
from tests.unit.slices.samples import offer
from usbdra.kube.client import KubeClient
from usbdra.kube.types import NODE, RESOURCE_SLICE, Object
from usbdra.slices.build import SliceOptions, Visibility, build

NODES = int(os.environ.get("BENCH_NODES", "20"))
DEVICES = 10
GROUP = f"controller, {NODES * DEVICES} devices on {NODES} nodes"


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
