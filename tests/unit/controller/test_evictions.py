# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.fakes.kube import FakeKube
from usbdra.controller.evictions import REASON, Evictions, lost
from usbdra.kube import errors
from usbdra.kube.types import EVENT, POD, RESOURCE_CLAIM, Object

DRIVER = "usb.example.com"
KEY = ("team", "cam")


def claim(
    on_reconnect: str = "evict", data: Any = None, driver: str = DRIVER, pods: str = "app"
) -> Object:
    """Allocated one device, reserved for these pods, which lost it unless `data` says other."""
    config = {
        "driver": DRIVER,
        "parameters": {
            "apiVersion": f"{DRIVER}/v1alpha1",
            "kind": "USBDeviceConfig",
            "onReconnect": on_reconnect,
        },
    }
    where = {"driver": driver, "pool": "usb-node-a", "device": "stick"}
    said = {"name": "stick", "node": "node-a", "lost": True} if data is None else data
    return {
        "metadata": {"namespace": "team", "name": "cam", "uid": "1"},
        "status": {
            "allocation": {
                "devices": {
                    "results": [{**where, "driver": DRIVER, "request": "usb"}],
                    "config": [{"source": "FromClaim", "opaque": config}],
                }
            },
            "reservedFor": [
                {"resource": "pods", "name": name, "uid": f"uid-{name}"} for name in pods.split()
            ],
            "devices": [{**where, "data": said}],
        },
    }


@pytest.mark.parametrize(
    ("item", "names"),
    [
        (claim(), ["stick"]),
        (claim("relink"), []),
        (claim("restartContainer"), []),
        (claim("nonsense"), []),
        (claim(data={"name": "stick", "node": "node-a"}), []),  # held, or never ready
        (claim(data={"name": "stick", "lost": "yes"}), []),
        (claim(data="?"), []),
        (claim(driver="gpu.example.com"), []),
        ({"metadata": {"namespace": "team", "name": "cam", "uid": "1"}}, []),
    ],
)
def test_what_a_claim_lost_and_evicts_for(item: Object, names: list[str]) -> None:
    assert lost(item, DRIVER) == names


@pytest.fixture
async def api() -> FakeKube:
    fake = FakeKube()
    for name in ("app", "second", "other"):
        meta = {"name": name, "namespace": "team", "uid": f"uid-{name}"}
        fake.put(POD, {"metadata": meta})
    return fake


@pytest.fixture
async def evictions(api: FakeKube) -> AsyncIterator[Evictions]:
    made = Evictions(api, DRIVER, "controller-1")
    task = asyncio.create_task(made.queue.run())
    yield made
    task.cancel()


def pods(api: FakeKube) -> set[str]:
    return {item["metadata"]["name"] for item in api.all(POD)}


async def test_its_pods_are_evicted_and_told(api: FakeKube, evictions: Evictions) -> None:
    evictions.put(KEY, claim(pods="app second"))
    await evictions.queue.drained()
    assert pods(api) == {"other"}
    told = [(e["reason"], e["regarding"]["name"], e["note"]) for e in api.all(EVENT)]
    assert sorted(told) == [
        (REASON, "app", "claim cam lost stick"),
        (REASON, "second", "claim cam lost stick"),
    ]
    evictions.put(KEY, claim(pods="app"))  # seen once more before the pod has left the claim
    await evictions.queue.drained()
    assert len(api.all(EVENT)) == 2


async def test_another_pod_of_the_name_stays(api: FakeKube, evictions: Evictions) -> None:
    api.put(POD, {"metadata": {"name": "new", "namespace": "team", "uid": "uid-of-another"}})
    evictions.put(KEY, claim(pods="new"))
    await evictions.queue.drained()
    assert "new" in pods(api)
    assert not api.all(EVENT)


async def test_a_refused_eviction_is_tried_again_while_the_device_is_lost(api: FakeKube) -> None:
    evictions = Evictions(api, DRIVER, "controller-1", backoff=(0.01, 0.01))
    running = asyncio.create_task(evictions.queue.run())
    gone = asyncio.Event()
    api.after_write = lambda verb, kind, item: gone.set() if kind == EVENT else None
    api.fail(errors.ApiUnavailable("evict", 429, "TooManyRequests", "disruption budget"))
    evictions.put(KEY, claim())
    await evictions.queue.drained()
    assert evictions.queue.failing == 1
    assert pods(api) == {"app", "second", "other"}
    api.fail(None)
    await gone.wait()
    assert pods(api) == {"second", "other"}
    running.cancel()


async def test_what_is_back_before_the_next_try_evicts_nobody(
    api: FakeKube, evictions: Evictions
) -> None:
    evictions.put(KEY, claim())
    evictions.put(KEY, claim(data={"name": "stick"}))
    await evictions.queue.drained()
    assert pods(api) == {"app", "second", "other"}


async def test_a_claim_that_is_gone_evicts_nobody(api: FakeKube, evictions: Evictions) -> None:
    evictions.put(KEY, claim())
    evictions.put(KEY, None)
    await evictions.queue.drained()
    assert pods(api) == {"app", "second", "other"}
    assert not [r for r in api.requests if r[1] == RESOURCE_CLAIM.plural]
