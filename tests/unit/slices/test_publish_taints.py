# SPDX-License-Identifier: Apache-2.0
"""Taints of assigned devices on the way to the API, also to one that does not keep them."""

from __future__ import annotations

from collections.abc import Sequence

from tests.fakes.kube import FakeKube
from tests.unit.slices.samples import offer
from tests.unit.slices.test_publish import publishing
from tests.waiting import until
from usbdra.kube.types import RESOURCE_SLICE, Kind, Object
from usbdra.slices.build import SliceOptions, Taint, build
from usbdra.types import DeviceName

STICK = DeviceName("usb-stick")


class Assigned:
    """One device, assigned to `namespace`; "" for nobody's, None for everybody's."""

    def __init__(self) -> None:
        self.namespace: str | None = ""
        self.device = offer(STICK)

    def build(self, dropped: frozenset[str]) -> Sequence[Object]:
        if self.namespace is None:
            return build([self.device], {}, SliceOptions(node="node-a", group="example.com"))
        kind = "assigned" if self.namespace else "unassigned"
        taint = Taint(f"example.com/{kind}", self.namespace)
        options = SliceOptions(node="node-a", group="example.com", taints={STICK: [taint]})
        return build([self.device], {}, options)


def taints(api: FakeKube) -> list[Object]:
    devices = [d for item in api.all(RESOURCE_SLICE) for d in item["spec"]["devices"]]
    return [taint for device in devices for taint in device.get("taints", ())]


async def test_an_assignment_and_its_end_are_one_write_each() -> None:
    api, assigned = FakeKube(), Assigned()
    async with publishing(api, assigned) as publisher:
        await publisher.published()
        assert taints(api) == [{"key": "example.com/unassigned", "effect": "NoSchedule"}]
        for namespace in ("lab", "other", ""):
            before = publisher.stats.writes
            assigned.namespace = namespace
            publisher.wake()
            await until(lambda now: publisher.stats.writes > now, before)
            assert publisher.stats.writes == before + 1
    assert taints(api) == [{"key": "example.com/unassigned", "effect": "NoSchedule"}]


async def test_what_a_device_has_no_more_goes_from_its_slice() -> None:
    """The server may add fields, so that one too many is not a difference by itself."""
    api, assigned = FakeKube(), Assigned()
    async with publishing(api, assigned) as publisher:
        await publisher.published()
        assigned.namespace = None
        publisher.wake()
        await until(lambda: taints(api) == [])
        assigned.device = offer(STICK, serial=None)
        publisher.wake()
        await until(lambda: "serial" not in repr(api.all(RESOURCE_SLICE)))


async def test_r52_a_server_that_drops_taints_is_not_written_to_again_and_again() -> None:
    api, assigned = FakeKube(), Assigned()

    def strip(kind: Kind, item: Object) -> None:
        for device in item["spec"]["devices"]:
            device.pop("taints", None)

    api.strip = strip
    async with publishing(api, assigned) as publisher:
        await publisher.published()
        assert publisher.stats.dropped == {"taints"}
        before = publisher.stats.writes
        for _ in range(3):
            publisher.wake()
            await until(lambda: not publisher._wake.is_set())
        assert publisher.stats.writes == before
    assert taints(api) == []
