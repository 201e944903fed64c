# SPDX-License-Identifier: Apache-2.0
"""Publishing that is cut short, wiped by others, or met by a server that keeps half of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.kube import FakeKube
from tests.searching import examples
from tests.waiting import until
from usbdra.kube import errors
from usbdra.kube.types import RESOURCE_SLICE, Kind, Object
from usbdra.slices.publish import SlicePublisher

from .test_publish import OWNER, manifests, published, publishing

NAMES = st.lists(st.sampled_from("abcdefg"), max_size=7, unique=True)


class Two:
    """Two pools of devices; `more` is put into each device."""

    def __init__(
        self,
        first: Sequence[str],
        second: Sequence[str] = (),
        more: Mapping[str, object] | None = None,
    ) -> None:
        self.first, self.second, self.more = tuple(first), tuple(second), more or {}

    def build(self, dropped: frozenset[str]) -> Sequence[Object]:
        slices = manifests(*self.first) + manifests(*self.second, pool="usblink-node-a")
        for item in slices:
            for device in item["spec"]["devices"]:
                device.update(self.more)
        return slices


def broken_pools(api: FakeKube) -> list[str]:
    """What is wrong with the newest generation of each pool (R53). Incomplete is not wrong: the
    scheduler leaves such a pool alone until it is whole."""
    pools: dict[str, list[Object]] = {}
    for item in api.all(RESOURCE_SLICE):
        pools.setdefault(item["spec"]["pool"]["name"], []).append(item)
    wrong = []
    for name, items in pools.items():
        newest = max(i["spec"]["pool"]["generation"] for i in items)
        current = [i for i in items if i["spec"]["pool"]["generation"] == newest]
        counts = {i["spec"]["pool"]["resourceSliceCount"] for i in current}
        devices = [d["name"] for i in current for d in i["spec"]["devices"]]
        if len(counts) != 1 or not 0 < len(current) <= max(counts):
            wrong.append(f"{name}: {len(current)} slices say {counts}")
        if len(set(devices)) != len(devices):
            wrong.append(f"{name}: a device twice in {devices}")
    return wrong


class Died(BaseException):
    """The process is gone at this write."""


async def run_until(publisher: SlicePublisher, api: FakeKube, writes: int) -> None:
    """Publish until settled, or until the process dies right after so many writes."""
    left, wrong = [writes], list[str]()

    def count(verb: str, kind: Kind, item: Object) -> None:
        wrong.extend(broken_pools(api))
        left[0] -= 1
        if left[0] == 0:
            raise Died

    api.after_write = count
    task = asyncio.create_task(publisher.run())
    settled = asyncio.create_task(publisher.published())
    await asyncio.wait((task, settled), return_when=asyncio.FIRST_COMPLETED)
    for one in (task, settled):
        one.cancel()
    await asyncio.gather(task, settled, return_exceptions=True)
    assert wrong == []


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.tuples(NAMES, NAMES, st.integers(1, 9)), min_size=1, max_size=4))
async def test_r53_however_often_it_dies_pools_are_sound_and_end_right(
    lives: list[tuple[list[str], list[str], int]],
) -> None:
    api = FakeKube()
    for first, second, writes in lives:
        offers = Two(first, second)
        publisher = SlicePublisher(api, OWNER, offers.build, backoff=(0.001, 0.01))
        await run_until(publisher, api, writes)
    api.after_write = lambda verb, kind, item: None
    async with publishing(api, offers) as publisher:
        await publisher.published()
    wanted = {i["metadata"]["name"]: i["spec"]["devices"] for i in offers.build(frozenset())}
    stored = {i["metadata"]["name"]: i["spec"]["devices"] for i in api.all(RESOURCE_SLICE)}
    assert stored == wanted
    for pool in ("usb-node-a", "usblink-node-a"):
        items = [i for i in api.all(RESOURCE_SLICE) if i["spec"]["pool"]["name"] == pool]
        assert len({i["spec"]["pool"]["generation"] for i in items}) <= 1
        assert {i["spec"]["pool"]["resourceSliceCount"] for i in items} <= {len(items)}


FIELDS: dict[str, object] = {
    "taints": [{"key": "example.com/assigned", "value": "lab", "effect": "NoSchedule"}],
    "consumesCounters": [{"counterSet": "c", "counters": {"x": {"value": "1"}}}],
    "nodeName": "node-a",
    "bindsToNode": True,
}


@pytest.mark.parametrize("field", FIELDS)
async def test_r52_a_field_the_server_drops_is_written_once_also_after_a_restart(
    field: str,
) -> None:
    api, offers = FakeKube(), Two(["a"], more={field: FIELDS[field]})

    def strip(kind: Kind, item: Object) -> None:
        for device in item["spec"]["devices"]:
            device.pop(field, None)

    api.strip = strip
    for writes in (1, 2):  # a new process cannot know what an earlier one learned
        async with publishing(api, offers) as publisher:
            await publisher.published()
            publisher.wake()
            await asyncio.sleep(0.01)
            assert publisher.stats.dropped == {field}
            assert len(api.requests) == writes


async def test_an_outage_ends_with_the_newest_offer_written_once() -> None:
    """An hour without an API server, in which devices come and go."""
    api, offers = FakeKube(), Two(["a"])
    async with publishing(api, offers) as publisher:
        await publisher.published()
        before = len(api.requests)
        api.fail(errors.ApiUnavailable("watch", 503, "ServiceUnavailable", "down"))
        for names in (["a", "b"], ["b"], ["b", "c"]):
            offers.first = tuple(names)
            publisher.wake()
            await asyncio.sleep(0.005)
        tries = publisher.stats.errors
        await asyncio.sleep(0.03)
        assert publisher.stats.errors - tries <= 12, "attempts have pauses between them"
        api.fail(None)
        await until(lambda: published(api) == {"usb-node-a-000": ["b", "c"]})
        await asyncio.sleep(0.02)
        written = [verb for verb, _, _ in api.requests[before:]]
    assert written.count("replace") >= 1
    assert [i["spec"]["pool"]["generation"] for i in api.all(RESOURCE_SLICE)] == [2]


async def test_r40_a_wipe_in_the_middle_of_our_own_write_is_mended() -> None:
    """The kubelet deletes all slices of its node when the plugin comes and goes."""
    api, offers = FakeKube(), Two("abcd", "xy")
    wiped: list[str] = []

    def wipe(verb: str, kind: Kind, item: Object) -> None:
        if len(api.requests) == 2 and not wiped:
            for stored in api.all(RESOURCE_SLICE):
                wiped.append(stored["metadata"]["name"])
                api.drop(RESOURCE_SLICE, stored["metadata"]["name"])

    api.after_write = wipe
    async with publishing(api, offers):
        want = {i["metadata"]["name"] for i in offers.build(frozenset())}
        await until(lambda: bool(wiped) and set(published(api)) == want)
        assert broken_pools(api) == []


async def test_r56_an_agent_that_was_away_finds_its_slices_wiped_and_puts_them_back() -> None:
    api, offers = FakeKube(), Two("ab")
    async with publishing(api, offers) as publisher:
        await publisher.published()
        names = set(published(api))
    for name in names:
        api.drop(RESOURCE_SLICE, name)
    async with publishing(api, offers) as publisher:
        await publisher.published()
        assert set(published(api)) == names
