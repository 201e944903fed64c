# SPDX-License-Identifier: Apache-2.0
"""Mirrors keep little, go forward only, and count our own writes as news."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.fakes.kube import FakeKube
from tests.waiting import patience
from usbdra.controller.mirror import Mirror, trimmed
from usbdra.kube import errors
from usbdra.kube.types import RESOURCE_CLAIM, Object
from usbdra.kube.watch import Key


def claim(name: str, **fields: object) -> Object:
    meta = {"name": name, "namespace": "ns", "managedFields": [{"manager": "x"}]}
    return {"metadata": meta, **fields}


class Seen:
    """What a mirror told, in order: name and spec, None for gone."""

    def __init__(self) -> None:
        self.news: list[tuple[str, object]] = []
        self.came = asyncio.Event()

    def __call__(self, key: Key, item: Object | None) -> None:
        self.news.append((key[1], item.get("spec", "") if item else None))
        self.came.set()

    async def wait(self, count: int) -> None:
        async with patience():
            while len(self.news) < count:
                self.came.clear()
                await self.came.wait()


@asynccontextmanager
async def mirrored(api: FakeKube, seen: Seen) -> AsyncIterator[Mirror]:
    mirror = Mirror(api, RESOURCE_CLAIM, lambda item: trimmed(item, "spec"), seen)
    task = asyncio.create_task(mirror.run())
    await mirror.synced.wait()
    try:
        yield mirror
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_only_identity_and_the_wanted_parts_are_kept() -> None:
    item = trimmed({**claim("x", spec=1, status=2), "kind": "K"}, "status", "missing")
    assert item == {"metadata": {"name": "x", "namespace": "ns"}, "status": 2}


async def test_changes_are_told_in_order_and_deletions_as_none() -> None:
    api, seen = FakeKube(), Seen()
    api.put(RESOURCE_CLAIM, claim("one", spec=1))
    async with mirrored(api, seen):
        api.put(RESOURCE_CLAIM, claim("one", spec=2))
        api.drop(RESOURCE_CLAIM, "one", "ns")
        await seen.wait(3)
    assert seen.news == [("one", 1), ("one", 2), ("one", None)]


async def test_what_a_write_returned_is_told_once_and_never_undone_by_older_news() -> None:
    api, seen = FakeKube(), Seen()
    async with mirrored(api, seen) as mirror:
        first = api.put(RESOURCE_CLAIM, claim("one", spec=1))
        second = api.put(RESOURCE_CLAIM, claim("one", spec=2))
        mirror.absorb(second)
        mirror.absorb(first)
        api.put(RESOURCE_CLAIM, claim("two", spec=0))  # comes after the watch told of both
        await seen.wait(2)
    assert seen.news == [("one", 2), ("two", 0)]


async def test_a_later_object_of_the_same_name_outlives_news_of_the_earlier_ones_end() -> None:
    api, seen = FakeKube(), Seen()
    api.put(RESOURCE_CLAIM, claim("one", spec="old"))
    async with mirrored(api, seen) as mirror:
        await seen.wait(1)
        api.drop(RESOURCE_CLAIM, "one", "ns")
        mirror.absorb(api.put(RESOURCE_CLAIM, claim("one", spec="new")))
        api.put(RESOURCE_CLAIM, claim("two", spec=0))
        await seen.wait(3)
    assert seen.news == [("one", "old"), ("one", "new"), ("two", 0)]


async def test_what_vanished_while_the_watch_was_away_is_told_after_a_new_list() -> None:
    api, seen = FakeKube(), Seen()
    async with mirrored(api, seen) as mirror:
        mirror.absorb(api.put(RESOURCE_CLAIM, claim("one", spec=1)))
        api.fail(errors.ApiExpired("watch", 410, "Expired", "too old"))
        await asyncio.sleep(0)
        api.drop(RESOURCE_CLAIM, "one", "ns")
        api.fail(None)
        await seen.wait(2)
    assert seen.news == [("one", 1), ("one", None)]


async def test_an_answer_that_comes_after_the_news_of_its_objects_end_is_no_news() -> None:
    api, seen = FakeKube(), Seen()
    async with mirrored(api, seen) as mirror:
        made = api.put(RESOURCE_CLAIM, claim("one", spec=1))
        api.drop(RESOURCE_CLAIM, "one", "ns")
        await seen.wait(2)
        mirror.absorb(made)
    assert seen.news == [("one", 1), ("one", None)]
