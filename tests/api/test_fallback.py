# SPDX-License-Identifier: Apache-2.0
"""A server without consumable capacity: the real publisher's fallback, and a real scheduler on it.

The claims are those of any other server: nobody has to know which layout is published.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
import pytest_asyncio

from tests.cluster.alone import Alone, add_node, control_plane_alone
from tests.cluster.api import ClusterApi
from tests.cluster.claims import consumer, serial, usb_claim
from tests.cluster.driver import DRIVER, GROUP, render
from tests.unit.slices.samples import offer
from usbdra.kube.client import KubeClient
from usbdra.slices.build import Layout, SliceOptions, build
from usbdra.slices.publish import Owner, SlicePublisher
from usbdra.types import Hub, Offer, Speed

GATES = {"DRAConsumableCapacity": False}
PORTS = {Hub.HIGH: 1, Hub.SUPER: 1}
OFFERS = {
    "a": [
        offer("one", serial="ONE"),
        offer("two", serial="TWO"),
        offer("fast", serial="FAST", speed=Speed.SUPER),
        offer("mouse", serial="MOUSE", speed=Speed.LOW, exportable=False, reason="1.5 Mbit/s"),
    ],
    "b": [],
}


@pytest.fixture(scope="module")
def old() -> Iterator[Alone]:
    """A control plane with the gate off, nodes a and b, and the chart's DeviceClasses."""
    with control_plane_alone(GATES) as cluster:
        for name in OFFERS:
            add_node(cluster.api, name, {f"{GROUP}/usbip": "true"})
        classes = [part for part in render().split("\n---\n") if "kind: DeviceClass" in part]
        cluster.api.apply("\n---\n".join(classes))
        cluster.api.wait(
            cluster.api.core.list_namespaced_service_account,
            lambda found: True if found else None,
            "the default service account",
            namespace="default",
        )
        yield cluster


@pytest_asyncio.fixture
async def publishers(old: Alone) -> AsyncIterator[dict[str, SlicePublisher]]:
    """The agents' publishers of both nodes, which have published."""
    client = await KubeClient.connect(old.api.kubeconfig)
    made = {}
    for name, offers in OFFERS.items():
        uid = old.api.core.read_node(name).metadata.uid
        made[name] = SlicePublisher(client, Owner(name, uid, DRIVER), _Build(name, offers))
    tasks = [asyncio.create_task(publisher.run()) for publisher in made.values()]
    for publisher in made.values():
        await asyncio.wait_for(publisher.published(), 30)
    yield made
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await client.aclose()


class _Build:
    """What the agent would publish, by the fields that the server keeps."""

    def __init__(self, node: str, offers: Sequence[Offer]) -> None:
        self._node, self._offers = node, offers

    def __call__(self, dropped: frozenset[str]) -> list[dict[str, Any]]:
        layout = Layout.PORTS if "allowMultipleAllocations" in dropped else Layout.HUB
        return build(self._offers, PORTS, SliceOptions(node=self._node, layout=layout))


async def test_r52_the_fallback_is_published_once_and_read_back_as_it_was_written(
    old: Alone, publishers: dict[str, SlicePublisher]
) -> None:
    stored = json.loads(old.api.kubectl("get", "resourceslices", "-o", "json"))["items"]
    specs = {item["spec"]["pool"]["name"]: item["spec"] for item in stored}
    wanted = [
        manifest["spec"]
        for name, offers in OFFERS.items()
        for manifest in build(offers, PORTS, SliceOptions(node=name, layout=Layout.PORTS))
    ]
    for spec in (*wanted, *specs.values()):
        spec["pool"] = {"name": spec["pool"]["name"]}  # generations went up on the way here
    assert specs == {spec["pool"]["name"]: spec for spec in wanted}
    writes = {name: publisher.stats.writes for name, publisher in publishers.items()}
    for publisher in publishers.values():
        publisher.wake()
    await asyncio.sleep(0.5)  # what must not happen has no event
    assert {name: each.stats.writes for name, each in publishers.items()} == writes


async def test_the_same_claims_are_placed_as_with_consumable_capacity(
    old: Alone, publishers: dict[str, SlicePublisher]
) -> None:
    api = old.api
    pods = {"one": "b", "two": "b", "fast": "b", "mouse": None}
    api.apply([usb_claim(name, serial(name.upper())) for name in pods])
    api.apply([consumer("pod-one", "one", node="b"), consumer("pod-mouse", "mouse")])
    assert await _placed(api, "one") == ("b", {"usb": "one", "usb-link/vhci": "vhci-high-0"})
    node, results = await _placed(api, "mouse")
    assert (node, results["usb"]) == ("a", "mouse")
    assert results["usb-link/direct"].startswith("direct-")
    # the high-speed port of b is taken, the super-speed one does not help
    api.apply([consumer("pod-two", "two", node="b"), consumer("pod-fast", "fast", node="b")])
    assert await _placed(api, "fast") == ("b", {"usb": "fast", "usb-link/vhci": "vhci-super-0"})
    said = await asyncio.to_thread(_refused, api, "pod-two")
    assert "cannot allocate all claims" in said


async def _placed(api: ClusterApi, claim: str) -> tuple[str, dict[str, str]]:
    """Where a claim was allocated: the pod's node, and request -> device."""

    def bound(pods: list[Any]) -> str | None:
        return next((pod.spec.node_name for pod in pods if pod.spec.node_name), None)

    node = await asyncio.to_thread(
        api.wait,
        api.core.list_namespaced_pod,
        bound,
        f"pod-{claim} has a node",
        namespace="default",
        field_selector=f"metadata.name=pod-{claim}",
    )
    found = api.resource.read_namespaced_resource_claim(claim, "default")
    return node, {r.request: r.device for r in found.status.allocation.devices.results}


def _refused(api: ClusterApi, pod: str) -> str:
    def message(pods: list[Any]) -> str | None:
        for condition in pods[0].status.conditions or [] if pods else []:
            if condition.reason == "Unschedulable":
                return str(condition.message)
        return None

    return api.wait(
        api.core.list_namespaced_pod,
        message,
        f"{pod} is pending",
        namespace="default",
        field_selector=f"metadata.name={pod}",
    )
