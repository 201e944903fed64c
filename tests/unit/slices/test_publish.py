# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import pytest

from tests.fakes.kube import FakeKube
from tests.waiting import until
from usbdra.kube import errors
from usbdra.kube.types import RESOURCE_SLICE, Kind, Object
from usbdra.slices.publish import Owner, SlicePublisher
from usbdra.slices.reconcile import Delete, Write, plan

OWNER = Owner("node-a", "uid-a", "usb.example.com")


def manifests(*devices: str, size: int = 2, pool: str = "usb-node-a") -> list[Object]:
    parts = [devices[i : i + size] for i in range(0, len(devices), size)]
    return [
        {
            "metadata": {"name": f"{pool}-{number:03d}"},
            "spec": {
                "driver": OWNER.driver,
                "nodeName": "node-a",
                "pool": {"name": pool, "generation": 1, "resourceSliceCount": len(parts)},
                "devices": [{"name": name, "allowMultipleAllocations": True} for name in part],
            },
        }
        for number, part in enumerate(parts)
    ]


class Building(Protocol):
    """What a publisher under test is to publish."""

    def build(self, dropped: frozenset[str]) -> Sequence[Object]: ...


class Offers:
    """What the publisher under test is to publish; `plain` is the layout without a gate."""

    def __init__(self, *devices: str) -> None:
        self.devices = devices
        self.plain = False

    def build(self, dropped: frozenset[str]) -> Sequence[Object]:
        slices = manifests(*self.devices)
        if "allowMultipleAllocations" in dropped:
            self.plain = True
            for item in slices:
                item["spec"]["devices"] = [{"name": d["name"]} for d in item["spec"]["devices"]]
        return slices


@asynccontextmanager
async def publishing(api: FakeKube, offers: Building) -> AsyncIterator[SlicePublisher]:
    publisher = SlicePublisher(api, OWNER, offers.build, backoff=(0.001, 0.01))
    task = asyncio.create_task(publisher.run())
    try:
        yield publisher
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def published(api: FakeKube) -> dict[str, list[str]]:
    return {
        item["metadata"]["name"]: [d["name"] for d in item["spec"]["devices"]]
        for item in api.all(RESOURCE_SLICE)
    }


def pools_are_sound(api: FakeKube) -> bool:
    """The newest generation of each pool has the right count or is not complete yet (R53)."""
    items = api.all(RESOURCE_SLICE)
    if not items:
        return True
    newest = max(i["spec"]["pool"]["generation"] for i in items)
    current = [i for i in items if i["spec"]["pool"]["generation"] == newest]
    names = [d["name"] for i in current for d in i["spec"]["devices"]]
    counts = {i["spec"]["pool"]["resourceSliceCount"] for i in current}
    return len(counts) == 1 and len(current) <= counts.pop() and len(set(names)) == len(names)


async def test_publishes_with_owner_and_label_then_stays_silent() -> None:
    api, offers = FakeKube(), Offers("a", "b", "c")
    async with publishing(api, offers) as publisher:
        await publisher.published()
        assert published(api) == {"usb-node-a-000": ["a", "b"], "usb-node-a-001": ["c"]}
        meta = api.all(RESOURCE_SLICE)[0]["metadata"]
        assert meta["ownerReferences"][0]["uid"] == "uid-a"
        assert meta["labels"]["usb.example.com/node"] == "node-a"
        before = len(api.requests)
        publisher.wake()
        await asyncio.sleep(0.02)
        assert len(api.requests) == before


async def test_a_change_is_written_whole_under_a_new_generation() -> None:
    api, offers = FakeKube(), Offers("a", "b", "c")
    sound: list[bool] = []
    async with publishing(api, offers) as publisher:
        await publisher.published()
        api.after_write = lambda verb, kind, item: sound.append(pools_are_sound(api))
        offers.devices = ("a",)
        publisher.wake()
        await until(lambda: published(api) == {"usb-node-a-000": ["a"]})
    assert sound == [True, True]
    assert [i["spec"]["pool"]["generation"] for i in api.all(RESOURCE_SLICE)] == [2]


async def test_r40_slices_deleted_by_others_come_back_under_the_same_names() -> None:
    api, offers = FakeKube(), Offers("a", "b", "c")
    async with publishing(api, offers) as publisher:
        await publisher.published()
        before = published(api)
        for name in before:
            api.drop(RESOURCE_SLICE, name)
        await until(lambda: published(api) == before)


async def test_another_visibility_makes_slices_anew_and_then_is_silent() -> None:
    """A slice's nodeName cannot be changed: the API server refuses it for ever."""
    api, offers = FakeKube(), Offers("a", "b", "c")
    everyone: Object = {"nodeSelector": {"nodeSelectorTerms": []}}

    class Seen:
        def build(self, dropped: frozenset[str]) -> Sequence[Object]:
            found = offers.build(dropped)
            for item in found:
                del item["spec"]["nodeName"]
                item["spec"] |= everyone
            return found

    def node_names() -> list[str | None]:
        return [item["spec"].get("nodeName") for item in api.all(RESOURCE_SLICE)]

    async with publishing(api, Seen()) as publisher:
        await publisher.published()
        assert node_names() == [None, None]
    for build, seen in ((offers, "node-a"), (Seen(), None)):
        async with publishing(api, build) as publisher:
            await publisher.published()
            assert node_names() == [seen, seen]
            assert publisher.stats.errors == 0
            assert published(api) == {"usb-node-a-000": ["a", "b"], "usb-node-a-001": ["c"]}
            before = len(api.requests)
            publisher.wake()
            await asyncio.sleep(0.02)
            assert len(api.requests) == before


async def test_a_delete_right_after_our_own_write_is_mended() -> None:
    """The watch may tell of the end of a slice before the answer to its creation is read."""
    api, offers = FakeKube(), Offers("a")
    dropped: list[str] = []

    def drop_first(verb: str, kind: Kind, item: Object) -> None:
        if verb == "create" and not dropped:
            dropped.append(item["metadata"]["uid"])
            api.drop(RESOURCE_SLICE, item["metadata"]["name"])

    api.after_write = drop_first
    async with publishing(api, offers):
        await until(lambda: bool(dropped) and published(api) == {"usb-node-a-000": ["a"]})
        assert api.all(RESOURCE_SLICE)[0]["metadata"]["uid"] != dropped[0]


async def test_r52_dropped_fields_lead_to_the_other_layout_and_then_to_silence() -> None:
    api, offers = FakeKube(), Offers("a")

    def strip(kind: Kind, item: Object) -> None:
        for device in item["spec"]["devices"]:
            device.pop("allowMultipleAllocations", None)

    api.strip = strip
    async with publishing(api, offers) as publisher:
        await publisher.published()
        await until(lambda: offers.plain)
        assert publisher.stats.dropped == {"allowMultipleAllocations"}
        await asyncio.sleep(0.01)
        before = len(api.requests)
        publisher.wake()
        await asyncio.sleep(0.02)
        assert len(api.requests) == before


async def test_r53_a_restart_after_half_a_generation_ends_with_one() -> None:
    api, offers = FakeKube(), Offers("a", "b", "c", "d")
    first, second = manifests("a", "b", "c", "x")
    for item in (first, second):
        item["spec"]["pool"]["generation"] = 4
    first["spec"]["pool"]["generation"] = 5
    for item in (first, second):
        api.put(RESOURCE_SLICE, OWNER.own(item))
    async with publishing(api, offers) as publisher:
        await publisher.published()
        items = api.all(RESOURCE_SLICE)
        assert {i["spec"]["pool"]["generation"] for i in items} == {6}
        assert {i["spec"]["pool"]["resourceSliceCount"] for i in items} == {2}
        assert published(api) == {"usb-node-a-000": ["a", "b"], "usb-node-a-001": ["c", "d"]}


@pytest.mark.parametrize(
    "error",
    [
        errors.ApiUnavailable("list", 0, "", "connection refused"),
        errors.ApiUnavailable("list", 503, "ServiceUnavailable", "starting"),
        errors.ApiForbidden("list", 403, "Forbidden", "RBAC is not there yet"),
        errors.ApiNotFound("list", 404, "NotFound", "resource.k8s.io is not served yet"),
    ],
    ids=["refused", "503", "403", "404"],
)
async def test_r57_an_api_server_that_is_away_is_waited_for(error: errors.ApiError) -> None:
    """And nothing that it said meanwhile is taken for its word on what it supports."""
    api, offers = FakeKube(), Offers("a")
    api.fail(error)
    async with publishing(api, offers) as publisher:
        await until(lambda: publisher.stats.errors >= 3)
        api.fail(None)
        await publisher.published()
        assert published(api) == {"usb-node-a-000": ["a"]}
        assert publisher.stats.dropped == frozenset()
        assert not offers.plain


async def test_r58_conflicts_are_retried_without_a_fast_loop() -> None:
    """Five conflicts in a row, then the write goes through."""
    api, offers = FakeKube(), Offers("a")
    async with publishing(api, offers) as publisher:
        await publisher.published()
        left = [5]
        real = api.replace

        async def conflicting(kind: Kind, body: Object) -> Object:
            if left[0]:
                left[0] -= 1
                raise errors.ApiConflict("replace", 409, "Conflict", "modified")
            return await real(kind, body)

        api.replace = conflicting  # type: ignore[method-assign, assignment]
        offers.devices = ("b",)
        publisher.wake()
        await until(lambda: published(api) == {"usb-node-a-000": ["b"]})
        assert left == [0]


async def test_foreign_slice_of_our_name_is_left_alone() -> None:
    api, offers = FakeKube(), Offers("a")
    foreign = manifests("z")[0]
    foreign["spec"]["driver"] = "gpu.example.com"
    api.put(RESOURCE_SLICE, foreign)
    async with publishing(api, offers) as publisher:
        await until(lambda: publisher.stats.errors >= 2)
        assert published(api) == {"usb-node-a-000": ["z"]}


def test_plan_writes_before_it_deletes() -> None:
    stored = [OWNER.own(m) for m in manifests("a", "b", "c")]
    steps = plan([OWNER.own(m) for m in manifests("a")], stored)
    assert [type(step) for step in steps] == [Write, Delete]
    written = steps[0]
    assert isinstance(written, Write)
    assert written.wanted["spec"]["pool"] == {
        "name": "usb-node-a",
        "generation": 2,
        "resourceSliceCount": 1,
    }


def test_plan_accepts_fields_the_server_adds() -> None:
    wanted, stored = ([OWNER.own(m) for m in manifests("a")] for _ in range(2))
    wanted[0]["spec"]["devices"][0]["taints"] = [{"key": "x"}]
    stored[0]["spec"]["devices"][0]["taints"] = [{"key": "x", "timeAdded": "now"}]
    stored[0]["spec"]["devices"][0]["ofTheFuture"] = True
    stored[0]["spec"]["pool"]["generation"] = 7
    assert plan(wanted, stored) == []
