# SPDX-License-Identifier: Apache-2.0
"""Numbers of links join what the plugin says of their claims."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tests.fakes.kube import FakeKube
from tests.waiting import patience
from usbdra.agent.linkreports import LinkReports
from usbdra.kube.types import RESOURCE_CLAIM
from usbdra.state.claims import (
    ClaimRecord,
    ClaimRef,
    DeviceNode,
    DeviceRecord,
    Held,
    Identity,
    Phase,
    Route,
)
from usbdra.transport.measure import Counters
from usbdra.types import BusId, ClaimUid, DeviceName, Endpoints, NodeName

DRIVER = "usb.example.com"
LINK = Endpoints("192.0.2.2", 40000, "192.0.2.1", 3241)
REF = ClaimRef("lab", "c", ClaimUid("uid-1"))
NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


def record(link: Endpoints | None = LINK) -> ClaimRecord:
    node = DeviceNode("/dev/bus/usb/002/002", 189, 129)
    held = Held(BusId("2-1"), 2, 2, node, Identity("0951", "1666"), link=link)
    device = DeviceRecord(
        "usb", "usb-a", "stick", DeviceName("stick"), NodeName("a"), Route.VHCI, held=held
    )
    return ClaimRecord(REF, Phase.PREPARED, "boot", (device,))


def entry(ready: str = "True", **data: Any) -> dict[str, Any]:
    condition = {"type": "Ready", "status": ready, "reason": "Attached"}
    return {"pool": "usb-a", "device": "stick", "conditions": [condition], "data": data}


class Inner:
    """The reporter behind; what it was told last."""

    def __init__(self) -> None:
        self.devices: list[Sequence[Mapping[str, Any]]] = []
        self.released_refs: list[ClaimRef] = []
        self.news = asyncio.Event()

    async def prepared(self, record: ClaimRecord, devices: Sequence[Mapping[str, Any]]) -> None:
        self.devices.append(devices)
        self.news.set()

    async def released(self, ref: ClaimRef) -> None:
        self.released_refs.append(ref)

    async def event(self, ref: ClaimRef, reason: str, message: str, warning: bool) -> None:
        self.devices.append([{"event": reason}])

    def link(self) -> Any:
        (device,) = self.devices[-1]
        return device["data"].get("link")


class Bench:
    def __init__(self, *records: ClaimRecord, seconds: float = 0.01) -> None:
        self.inner, self.kube = Inner(), FakeKube()
        self.records = list(records)
        self.counters = {LINK: Counters(500, 0, 0, 0)}
        self.looks = 0
        self.reports = LinkReports(
            self.inner, self.kube, DRIVER, lambda: self.records, self.count,
            seconds=seconds, now=lambda: NOW,
        )  # fmt: skip

    def count(self) -> Mapping[Endpoints, Counters]:
        """The kernel's word; every look finds some bytes more."""
        self.looks += 1
        return {k: replace(c, sent=c.sent + self.looks) for k, c in self.counters.items()}

    async def look(self, sent: int) -> None:
        """Look again after so many bytes, later by the clock's smallest step at least."""
        self.counters = {LINK: Counters(500, sent, 0, 0)}
        await asyncio.sleep(0.001)
        await self.reports.look()


async def test_numbers_are_added_to_what_the_plugin_said_and_stay_there() -> None:
    bench = Bench(record())
    await bench.reports.prepared(record(), [entry(port=3)])
    await bench.look(0)
    assert bench.inner.link() is None
    await bench.look(1_000_000)
    assert bench.inner.link()["sentBytesPerSecond"] > 0
    assert bench.inner.link()["time"] == "2026-01-31T12:00:00Z"
    (device,) = bench.inner.devices[-1]
    assert device["data"]["port"] == 3
    await bench.reports.prepared(record(), [entry(port=4)])
    assert bench.inner.link()["rttMicroseconds"] == 500


async def test_a_device_that_was_lost_has_no_numbers_and_an_idle_link_costs_no_write() -> None:
    bench = Bench(record())
    await bench.reports.prepared(record(), [entry()])
    await bench.look(0)
    await bench.look(0)
    writes = len(bench.inner.devices)
    await bench.look(0)
    assert len(bench.inner.devices) == writes
    await bench.reports.prepared(record(), [entry("False")])
    assert bench.inner.link() is None


async def test_after_a_restart_the_apis_own_entries_are_the_start() -> None:
    bench = Bench(record())
    theirs = {**entry(), "driver": "other.example.com"}
    ours = {**entry(name="stick"), "driver": DRIVER}
    meta = {"name": "c", "namespace": "lab", "uid": "uid-1"}
    bench.kube.put(RESOURCE_CLAIM, {"metadata": meta, "status": {"devices": [theirs, ours]}})
    await bench.look(0)
    await bench.look(1_000_000)
    (devices,) = bench.inner.devices
    assert [d["data"]["name"] for d in devices] == ["stick"]
    assert "driver" not in devices[0]
    assert bench.inner.link() is not None


async def test_a_claim_of_another_life_and_one_that_is_gone_are_left_alone() -> None:
    bench = Bench(record())
    meta = {"name": "c", "namespace": "lab", "uid": "another"}
    ours = {**entry(), "driver": DRIVER}
    bench.kube.put(RESOURCE_CLAIM, {"metadata": meta, "status": {"devices": [ours]}})
    await bench.look(0)
    await bench.look(1_000_000)
    bench.kube.drop(RESOURCE_CLAIM, "c", "lab")
    await bench.look(9_000_000_000)
    assert bench.inner.devices == []


async def test_what_is_released_is_forgotten() -> None:
    bench = Bench(record())
    await bench.reports.prepared(record(), [entry()])
    await bench.look(0)
    bench.records.clear()
    await bench.reports.released(REF)
    await bench.look(1_000_000)
    assert bench.inner.released_refs == [REF]
    assert len(bench.inner.devices) == 1
    await bench.reports.event(REF, "Detached", "", False)
    assert bench.inner.devices[-1] == [{"event": "Detached"}]


async def test_nothing_runs_until_a_claim_has_a_link() -> None:
    bench = Bench()
    task = asyncio.create_task(bench.reports.run())
    for _ in range(20):
        await asyncio.sleep(0)
    assert bench.looks == 0
    bench.records.append(record())
    await bench.reports.prepared(record(), [entry()])
    async with patience():
        while bench.inner.link() is None:
            bench.inner.news.clear()
            await bench.inner.news.wait()
    task.cancel()
    await asyncio.wait([task])
