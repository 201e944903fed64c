# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.fakes.kube import FakeKube
from usbdra.agent.reporter import KubeReporter
from usbdra.kube import errors
from usbdra.kube.types import EVENT, RESOURCE_CLAIM, Kind, Object
from usbdra.state.claims import ClaimRecord, ClaimRef, Phase
from usbdra.types import ClaimUid, NodeName

REF = ClaimRef("lab", "stick", ClaimUid("uid-1"))
RECORD = ClaimRecord(REF, Phase.PREPARED, "boot", ())


class Api(FakeKube):
    """FakeKube with server-side apply recorded as it comes."""

    def __init__(self) -> None:
        super().__init__()
        self.applied: list[tuple[str, str, list[Any]]] = []

    async def apply(
        self,
        kind: Kind,
        body: Object,
        *,
        manager: str,
        namespace: str | None = None,
        subresource: str = "",
        force: bool = True,
    ) -> Object:
        stored = await self.get(kind, body["metadata"]["name"], namespace)
        if stored["metadata"]["uid"] != body["metadata"]["uid"]:
            raise errors.ApiConflict("apply", 409, "Conflict", "uid mismatch")
        self.applied.append((manager, subresource, body["status"]["devices"]))
        return stored


def api_with_claim(uid: str = "uid-1") -> Api:
    api = Api()
    reserved = [{"resource": "pods", "name": "reader", "uid": "pod-1"}]
    api.put(
        RESOURCE_CLAIM,
        {
            "metadata": {"name": "stick", "namespace": "lab", "uid": uid},
            "status": {"reservedFor": reserved},
        },
    )
    return api


@asynccontextmanager
async def reporting(api: Api) -> AsyncIterator[KubeReporter]:
    reporter = KubeReporter(api, "usb.example.com", NodeName("node-b"), backoff=(0.001, 0.01))
    task = asyncio.create_task(reporter.run())
    yield reporter
    await asyncio.sleep(0.02)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_status_is_applied_under_the_nodes_own_manager_and_removed_again() -> None:
    api = api_with_claim()
    async with reporting(api) as reporter:
        await reporter.prepared(RECORD, [{"pool": "usb-node-a", "device": "stick"}])
        await asyncio.sleep(0.01)
        await reporter.released(REF)
    told = {"pool": "usb-node-a", "device": "stick", "data": {"usedOn": "node-b"}}
    entry = {"driver": "usb.example.com", **told}
    assert api.applied == [
        ("usb.example.com/node-b", "status", [entry]),
        ("usb.example.com/node-b", "status", []),
    ]


async def test_a_claim_of_the_same_name_and_another_life_is_not_touched() -> None:
    api = api_with_claim(uid="uid-2")
    async with reporting(api) as reporter:
        await reporter.prepared(RECORD, [{"pool": "p", "device": "d"}])
    assert api.applied == []


async def test_the_newest_status_survives_an_outage_and_the_older_is_not_sent() -> None:
    api = api_with_claim()
    api.fail(errors.ApiUnavailable("apply", 503, "ServiceUnavailable", "down"))
    async with reporting(api) as reporter:
        await reporter.prepared(RECORD, [{"pool": "p", "device": "old"}])
        await reporter.prepared(RECORD, [{"pool": "p", "device": "new"}])
        await asyncio.sleep(0.01)
        assert api.applied == []
        api.fail(None)
    assert [devices[0]["device"] for _, _, devices in api.applied] == ["new"]


async def test_events_reach_the_claim_and_its_pod_once_a_minute() -> None:
    api = api_with_claim()
    async with reporting(api) as reporter:
        for _ in range(3):
            await reporter.event(REF, "NoFreeUSBIPPort", "no high-speed port free", True)
    events = api.all(EVENT)
    seen = sorted((e["regarding"]["kind"], e["reason"], e["type"]) for e in events)
    assert seen == [
        ("Pod", "NoFreeUSBIPPort", "Warning"),
        ("ResourceClaim", "NoFreeUSBIPPort", "Warning"),
    ]
    assert all(e["metadata"]["namespace"] == "lab" for e in events)


async def test_events_of_a_deleted_claim_are_still_told() -> None:
    api = Api()
    async with reporting(api) as reporter:
        await reporter.event(REF, "Detached", "given back", False)
    assert [e["regarding"]["uid"] for e in api.all(EVENT)] == ["uid-1"]


async def test_a_claim_whose_parameters_apply_would_reorder_is_told_by_a_merge() -> None:
    api = api_with_claim()
    other = {"driver": "net.example.com", "pool": "p", "device": "d"}
    elsewhere = {"driver": "usb.example.com", "pool": "p", "device": "e", "data": {"usedOn": "a"}}
    before = {**elsewhere, "device": "f", "data": {"usedOn": "node-b"}}
    stored = await api.get(RESOURCE_CLAIM, "stick", "lab")
    stored["status"]["devices"] = [other, elsewhere, before]
    api.put(RESOURCE_CLAIM, stored)

    async def refuse(*_: object, **__: object) -> Object:
        raise errors.ApiInvalid("apply", 422, "Invalid", "status.allocation: cannot be modified")

    api.apply = refuse  # type: ignore[method-assign]
    async with reporting(api) as reporter:
        await reporter.prepared(RECORD, [{"pool": "p", "device": "g"}])
        await reporter.flushed()
    devices = (await api.get(RESOURCE_CLAIM, "stick", "lab"))["status"]["devices"]
    new = {"driver": "usb.example.com", "pool": "p", "device": "g", "data": {"usedOn": "node-b"}}
    assert devices == [other, elsewhere, new]
