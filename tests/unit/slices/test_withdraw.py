# SPDX-License-Identifier: Apache-2.0
"""The driver's end: in use it stays, else agents first, then slices, and only ours."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.fakes.kube import FakeKube
from usbdra.errors import Refused
from usbdra.kube import errors
from usbdra.kube.types import DAEMON_SET, DEPLOYMENT, POD, RESOURCE_CLAIM, RESOURCE_SLICE
from usbdra.slices.withdraw import Installation, withdraw

DRIVER = "usb.example.com"
LABELS = {"app": "agent"}
WHAT = Installation(driver=DRIVER, namespace="ns", daemon_set="agent", agents="app=agent")


def cluster(*nodes: str) -> FakeKube:
    """A driver with an agent and a slice on each node, and somebody else's slice."""
    api = FakeKube()
    api.put(DAEMON_SET, {"metadata": {"name": "agent", "namespace": "ns"}})
    for node in nodes:
        meta = {"name": f"agent-{node}", "namespace": "ns", "labels": LABELS}
        api.put(POD, {"metadata": meta, "spec": {"nodeName": node}})
        api.put(RESOURCE_SLICE, {"metadata": {"name": f"usb-{node}"}, "spec": {"driver": DRIVER}})
    other = {"metadata": {"name": "gpu"}, "spec": {"driver": "gpu.example.com"}}
    api.put(RESOURCE_SLICE, other)
    return api


def hold(api: FakeKube, name: str, driver: str = DRIVER, pod: str = "user") -> None:
    """A claim that a pod holds."""
    results = [{"driver": driver, "pool": "a", "device": "x"}]
    status: dict[str, Any] = {"allocation": {"devices": {"results": results}}}
    status["reservedFor"] = [{"resource": "pods", "name": pod, "uid": "1"}]
    api.put(RESOURCE_CLAIM, {"metadata": {"name": name, "namespace": "team"}, "status": status})


def slices(api: FakeKube) -> list[str]:
    return [item["metadata"]["name"] for item in api.all(RESOURCE_SLICE)]


async def end_agents(api: FakeKube) -> None:
    """What the garbage collector and the kubelets do once the DaemonSet is gone."""
    while api.all(DAEMON_SET):
        await asyncio.sleep(0)
    for pod in api.all(POD):
        await asyncio.sleep(0)
        assert "usb-a" in slices(api), "slices go before the agents, which make them again"
        api.drop(POD, pod["metadata"]["name"], "ns")


async def test_agents_go_first_then_our_slices_and_no_others() -> None:
    api = cluster("a", "b")
    async with asyncio.TaskGroup() as group:
        group.create_task(end_agents(api))
        gone = group.create_task(withdraw(api, WHAT))
    assert gone.result() == 2
    assert slices(api) == ["gpu"]


async def test_a_controller_that_publishes_for_hosts_outside_goes_with_the_agents() -> None:
    api = cluster("a", "outside.pi")  # as many pods as publish
    api.put(DEPLOYMENT, {"metadata": {"name": "controller", "namespace": "ns"}})
    async with asyncio.TaskGroup() as group:
        group.create_task(end_agents(api))
        gone = group.create_task(withdraw(api, replace(WHAT, deployment="controller")))
    assert gone.result() == 2
    assert api.all(DEPLOYMENT) == []


async def test_a_second_time_finds_nothing_to_do() -> None:
    api = cluster()
    assert await withdraw(api, WHAT) == 0
    assert await withdraw(api, WHAT) == 0
    assert slices(api) == ["gpu"]


async def test_r55_claims_in_use_are_named_and_nothing_is_done() -> None:
    api = cluster("a")
    hold(api, "disk", pod="reader")
    hold(api, "card", driver="gpu.example.com")
    with pytest.raises(Refused, match=r"1 claims are in use: team/disk \(reader\); delete"):
        await withdraw(api, WHAT)
    assert api.requests == []


async def test_a_long_list_of_claims_is_cut() -> None:
    api = cluster()
    for number in range(12):
        hold(api, f"claim-{number:02}")
    with pytest.raises(Refused, match=r"12 claims .*claim-09 \(user\) and 2 more; "):
        await withdraw(api, WHAT)


async def test_an_agent_that_cannot_end_is_left_after_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api = cluster("a", "dead")
    hold(api, "disk")
    api.drop(POD, "agent-a", "ns")
    assert await withdraw(api, WHAT, force=True, patience=0.05) == 2
    assert slices(api) == ["gpu"]
    assert "agents did not end within 0 s on: dead" in caplog.text


async def test_missing_rights_end_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    api = cluster("a")
    real = api.list

    async def list_(kind: Any, *given: Any, **more: Any) -> Any:
        if kind == POD:
            raise errors.ApiForbidden("list pods", 403, "Forbidden", "no")
        return await real(kind, *given, **more)

    monkeypatch.setattr(api, "list", list_)
    with pytest.raises(errors.ApiForbidden):
        await withdraw(api, WHAT)
    assert slices(api) == ["gpu", "usb-a"]
