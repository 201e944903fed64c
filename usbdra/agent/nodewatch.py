# SPDX-License-Identifier: Apache-2.0
"""Single Nodes as the API server has them now: those that use a device of ours, or lately did.

Owns a watch of one Node object for each, and no other: in a large cluster somebody's status
changes every moment, and is nobody's business here. A node that used a device is the likeliest to
ask for one again, so it stays watched for a while: its next attach costs no read of its Node. A
watch that has not heard from the server says nothing rather than what was. Decides nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

from usbdra.kube.types import NODE, Object
from usbdra.kube.verbs import Lister
from usbdra.kube.watch import Reflector
from usbdra.types import NodeName

log = logging.getLogger(__name__)

LINGER_SECONDS = 3600.0
"""How long a node is watched after its last session; the server is asked again each 5 minutes."""
MAX_LINGERING = 16
FRESH_SECONDS = 75.0
"""How long a watch is believed without a word of the server, which sends a bookmark each minute
(storage/cacher/cacher.go `defaultBookmarkFrequency`)."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A Node as its watch has it; None: it is not in the cluster."""

    node: Object | None


@dataclass(slots=True)
class _Watch:
    """One node's mirror, who keeps it running, and what ends it when nobody uses it any more."""

    mirror: Reflector
    task: asyncio.Task[None] | None = None
    end: asyncio.TimerHandle | None = None


class NodeWatches:
    """`gone(node)` is called when a held or lingering Node leaves, or is made anew."""

    def __init__(self, api: Lister, gone: Callable[[NodeName], None]) -> None:
        self._api = api
        self._gone = gone
        self._watches: dict[NodeName, _Watch] = {}

    def hold(self, node: NodeName) -> None:
        """Watch the node until `release` and a while longer; held once however often called."""
        watch = self._watches.get(node)
        if watch is None:
            mirror = Reflector(self._api, NODE, fields=f"metadata.name={node}", on_error=_complain)
            watch = self._watches[node] = _Watch(mirror)
            watch.task = asyncio.create_task(self._follow(node, mirror))
        elif watch.end is not None:
            watch.end.cancel()
            watch.end = None

    def release(self, node: NodeName) -> None:
        """The node uses nothing of ours now."""
        watch = self._watches.get(node)
        if watch is None or watch.end is not None:
            return
        watch.end = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._stop, node)
        lingering = [(one.end.when(), name) for name, one in self._watches.items() if one.end]
        if len(lingering) > MAX_LINGERING:
            self._stop(min(lingering)[1])

    def seen(self, node: NodeName) -> Seen | None:
        """The node as it is now; None when no watch can say so."""
        watch = self._watches.get(node)
        if watch is None or watch.mirror.silent_for() > FRESH_SECONDS:
            return None
        return Seen(watch.mirror.cache.get(("", node)))

    async def aclose(self) -> None:
        """End the watches."""
        tasks = [self._stop(node) for node in list(self._watches)]
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _stop(self, node: NodeName) -> asyncio.Task[None]:
        watch = self._watches.pop(node)
        if watch.end is not None:
            watch.end.cancel()
        assert watch.task is not None
        watch.task.cancel()
        return watch.task

    async def _follow(self, node: NodeName, mirror: Reflector) -> None:
        first = ""
        async for _ in mirror.run():
            uid = _uid(mirror.cache.get(("", node)))
            first = first or uid
            if not uid or uid != first:
                first = uid
                self._gone(node)


def _uid(node: Object | None) -> str:
    return str(node["metadata"]["uid"]) if node else ""


def _complain(error: Exception) -> None:
    log.warning("a node that uses a device of ours is not watched: %s", error)
