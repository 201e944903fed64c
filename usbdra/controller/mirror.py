# SPDX-License-Identifier: Apache-2.0
"""Mirrors of the API for the controller: small objects, no step back in time.

Owns the watch of one kind, the trimming of its objects before they are kept, and the place for
what our own writes returned, so that the next decision does not repeat them. Must not know what
the objects mean.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from usbdra.kube import errors
from usbdra.kube.types import Keep, Kind, Object
from usbdra.kube.verbs import Lister
from usbdra.kube.watch import Change, Key, Reflector, key_of

log = logging.getLogger(__name__)

MAX_GONE = 1024
"""Objects whose end is remembered: far more than writes that are under way at one time."""

OnChange = Callable[[Key, Object | None], None]

_META = (
    "name", "namespace", "uid", "resourceVersion", "generation", "deletionTimestamp", "labels",
    "annotations", "ownerReferences",
)  # fmt: skip


def trimmed(item: Object, *parts: str) -> Object:
    """The object's identity, and those parts of it: managed fields are half of an object."""
    meta: Object = item["metadata"]
    kept: Object = {"metadata": {key: meta[key] for key in _META if key in meta}}
    return kept | {part: item[part] for part in parts if part in item}


class Mirror:
    """One kind. `on_change` gets every new state, and None for an object that went."""

    def __init__(
        self,
        api: Lister,
        kind: Kind,
        trim: Keep,
        on_change: OnChange,
        *,
        labels: str = "",
        fields: str = "",
    ) -> None:
        self.synced = asyncio.Event()
        self._kind = kind
        self._trim = trim
        self._on_change = on_change
        self._reflector = Reflector(
            api, kind, labels=labels, fields=fields, keep=trim, on_error=self._note
        )
        self._seen: dict[Key, tuple[str, int]] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()

    async def run(self) -> None:
        """Follow until cancelled."""
        async for item in self._reflector.run():
            if isinstance(item, Change):
                self._take(item)
            else:
                self.synced.set()

    def absorb(self, item: Object) -> None:
        """Take what a write of ours returned for news of its own.

        The watch may be faster than the answer, and the object's end be known already.
        """
        small = self._trim(item)
        key = key_of(small)
        if _mark(small)[0] in self._gone or not self._fresh(key, small):
            return
        cached = self._reflector.cache.get(key)
        if cached is None or _mark(cached)[0] == _mark(small)[0]:  # else its end is still to come
            self._reflector.cache[key] = small
        self._on_change(key, small)

    def _take(self, change: Change) -> None:
        if change.new is not None:
            if self._fresh(change.key, change.new):
                self._on_change(change.key, change.new)
            return
        uid = (change.old or {}).get("metadata", {}).get("uid", "")
        self._gone[uid] = None
        if len(self._gone) > MAX_GONE:
            self._gone.popitem(last=False)
        if self._seen.get(change.key, (uid, 0))[0] == uid:  # else a later one has the name
            self._seen.pop(change.key, None)
            self._on_change(change.key, None)

    def _fresh(self, key: Key, item: Object) -> bool:
        """Newer than what was seen. Versions of one kind are comparable numbers (KEP-5504)."""
        mark = _mark(item)
        before = self._seen.get(key)
        if before is not None and before[0] == mark[0] and before[1] >= mark[1]:
            return False
        self._seen[key] = mark
        return True

    def _note(self, error: errors.ApiError) -> None:
        log.warning("%s: %s", self._kind.plural, error, extra={"reason": error.reason})


def _mark(item: Object) -> tuple[str, int]:
    meta = item["metadata"]
    version = str(meta.get("resourceVersion", ""))
    return meta.get("uid", ""), int(version) if version.isdigit() else 0


async def follow(sources: Sequence[Mirror], work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run all of them, for ever; `work` begins when each has seen its objects once."""
    async with asyncio.TaskGroup() as group:
        for source in sources:
            group.create_task(source.run())
        for source in sources:
            await source.synced.wait()
        group.create_task(work())
