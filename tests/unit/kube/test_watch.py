# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any

from tests.fakes.kube import FakeKube
from tests.waiting import patience
from usbdra.kube import errors
from usbdra.kube.types import NODE, POD, RESOURCE_SLICE, Object
from usbdra.kube.watch import Change, Reflector, Synced


def node(name: str, **labels: str) -> Object:
    return {"metadata": {"name": name, "labels": labels}}


async def take(reflector: Reflector, count: int) -> list[str]:
    """The next items in words, from a fresh run."""
    words = []
    async for item in reflector.run():
        if isinstance(item, Synced):
            words.append("synced")
        else:
            words.append(("-" if item.new is None else "+") + item.key[1])
        if len(words) == count:
            break
    return words


async def test_lists_then_follows() -> None:
    api = FakeKube()
    api.put(NODE, node("a"))
    reflector = Reflector(api, NODE, backoff=(0.001, 0.01))
    seen: list[Change | Synced] = []

    async def follow() -> None:
        async for item in reflector.run():
            seen.append(item)

    task = asyncio.create_task(follow())
    await asyncio.sleep(0.005)
    api.put(NODE, node("b"))
    api.drop(NODE, "a")
    await asyncio.sleep(0.005)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    keys = [(i.key[1], i.new is None) if isinstance(i, Change) else "synced" for i in seen]
    assert keys == [("a", False), "synced", ("b", False), ("a", True)]
    assert list(reflector.cache) == [("", "b")]


async def test_only_the_selected_objects_are_mirrored() -> None:
    api = FakeKube()
    api.put(NODE, node("a", zone="x"))
    api.put(NODE, node("b", zone="y"))
    assert await take(Reflector(api, NODE, labels="zone=y"), 2) == ["+b", "synced"]


async def test_an_expired_version_leads_to_a_new_list_that_tells_what_went() -> None:
    api = FakeKube()
    api.put(NODE, node("a"))
    reflector = Reflector(api, NODE, backoff=(0.001, 0.01))
    seen: list[str] = []
    async for item in reflector.run():
        if isinstance(item, Synced):
            seen.append("synced")
            if len(seen) == 2:
                api.drop(NODE, "a")
                api.put(NODE, node("b"))
                api.oldest_watchable = 10**9
        else:
            seen.append(("-" if item.new is None else "+") + item.key[1])
        if len(seen) == 5:
            break
    assert seen == ["+a", "synced", "-a", "+b", "synced"]


async def test_an_outage_is_reported_and_survived() -> None:
    api = FakeKube()
    heard: list[str] = []
    reflector = Reflector(
        api, NODE, on_error=lambda e: heard.append(e.api_reason), backoff=(0.001, 0.002)
    )
    api.fail(errors.ApiUnavailable("list", 0, "NoAnswer", "connection refused"))
    task = asyncio.create_task(take(reflector, 2))
    await asyncio.sleep(0.01)
    api.fail(None)
    api.put(NODE, node("a"))
    async with patience():
        assert set(await task) == {"synced", "+a"}
    assert set(heard) == {"NoAnswer"}


def test_paths() -> None:
    assert POD.path("ns", "p", "status") == "/api/v1/namespaces/ns/pods/p/status"
    assert POD.path() == "/api/v1/pods"
    assert RESOURCE_SLICE.path(None, "s") == "/apis/resource.k8s.io/v1/resourceslices/s"


async def test_silence_is_measured_from_the_servers_last_word() -> None:
    class Api(FakeKube):
        async def watch(self, *args: Any, **options: Any) -> AsyncIterator[tuple[str, Object]]:
            await go.wait()
            yield "BOOKMARK", {"metadata": {"resourceVersion": "7"}}
            go.clear()
            await go.wait()

    go = asyncio.Event()
    api = Api()
    api.put(NODE, node("a"))
    reflector = Reflector(api, NODE)
    assert reflector.silent_for() == math.inf

    async def follow() -> None:
        async for _ in reflector.run():
            pass

    task = asyncio.create_task(follow())
    await asyncio.sleep(0.02)
    listed = reflector.silent_for()
    assert 0.005 < listed < 5
    go.set()
    while go.is_set():
        await asyncio.sleep(0)
    assert reflector.silent_for() < listed, "a bookmark is a word too"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
