# SPDX-License-Identifier: Apache-2.0
"""The pods that USBAttachments name: each followed by itself, for as long as one names it.

Owns their watches. There are as many as pods with a device plugged in, a handful, where a watch of
all pods would be most of a cluster's news. Decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from usbdra.controller.mirror import Mirror, trimmed
from usbdra.kube.types import POD, Object
from usbdra.kube.verbs import Lister
from usbdra.kube.watch import Key

OnPod = Callable[[Key, Object | None], None]


class NamedPods:
    """See module. `on_pod` gets each pod as it is, None when it is not there; `on_end` the key of
    one that is not followed any more. Call `want` whenever it may have changed; run `run`."""

    def __init__(self, api: Lister, on_pod: OnPod, on_end: Callable[[Key], None]) -> None:
        self._api = api
        self._on_pod = on_pod
        self._on_end = on_end
        self._wanted: frozenset[Key] = frozenset()
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._news = asyncio.Event()

    def want(self, keys: Collection[Key]) -> None:
        """Follow these and no others."""
        self._wanted = frozenset(keys)
        self._news.set()

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._news.clear()
                for key in self._tasks.keys() - self._wanted:
                    self._tasks.pop(key).cancel()
                    self._on_end(key)
                for key in sorted(self._wanted - self._tasks.keys()):
                    self._tasks[key] = group.create_task(self._follow(key))
                await self._news.wait()

    async def _follow(self, key: Key) -> None:
        namespace, name = key
        seen = False

        def changed(_: Key, item: Object | None) -> None:
            nonlocal seen
            seen = True
            self._on_pod(key, item)

        fields = f"metadata.namespace={namespace},metadata.name={name}"
        mirror = Mirror(self._api, POD, _pod, changed, fields=fields)
        async with asyncio.TaskGroup() as group:
            group.create_task(mirror.run())
            await mirror.synced.wait()
            if not seen:
                self._on_pod(key, None)


def _pod(item: Object) -> Object:
    """Where it is, and its containers with their identifiers while they run."""
    small = trimmed(item)
    spec, status = item.get("spec") or {}, item.get("status") or {}
    small["spec"] = {
        "nodeName": spec.get("nodeName", ""),
        "containers": [{"name": one["name"]} for one in spec.get("containers") or ()],
    }
    small["status"] = {
        "phase": status.get("phase", ""),
        "containerStatuses": [_status(one) for one in status.get("containerStatuses") or ()],
    }
    return small


def _status(one: Object) -> dict[str, Any]:
    return {
        "name": one["name"],
        "containerID": one.get("containerID", ""),
        "state": {key: {} for key in one.get("state") or ()},
    }
