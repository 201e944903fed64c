# SPDX-License-Identifier: Apache-2.0
"""List, then watch, for ever: one cache of objects that is true or says that it is not.

Owns the cache and the back-off. Must not decide what the objects mean.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from . import errors
from .types import Keep, Kind, Object
from .verbs import Lister

Key = tuple[str, str]
"""(namespace or "", name)."""


@dataclass(frozen=True, slots=True)
class Change:
    """One object that came, changed (`new`), or went (`new` is None). `old` as it was cached."""

    key: Key
    old: Object | None
    new: Object | None


@dataclass(frozen=True, slots=True)
class Synced:
    """A full list has been applied to the cache; all its changes were yielded before."""


class Reflector:
    """Mirrors one selection of one kind into `cache` and yields what changed.

    keep: what is kept of each object, where that is not all of it.
    """

    def __init__(
        self,
        client: Lister,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        keep: Keep | None = None,
        on_error: Callable[[errors.ApiError], None] = lambda _: None,
        backoff: tuple[float, float] = (0.5, 30.0),
    ) -> None:
        self.cache: dict[Key, Object] = {}
        self._client = client
        self._kind = kind
        self._namespace = namespace
        self._selectors = {"labels": labels, "fields": fields}
        self._keep = keep
        self._on_error = on_error
        self._backoff = backoff
        self._heard = -math.inf

    def silent_for(self) -> float:
        """Seconds since the server last said anything: a list, a change, or a bookmark that says
        there is none. Infinite before the first list."""
        return asyncio.get_running_loop().time() - self._heard

    async def run(self) -> AsyncGenerator[Change | Synced, None]:
        """Changes in the order the server made them; only cancellation ends it.

        Errors are given to `on_error` and retried with growing, jittered pauses: an API server
        that is away for an hour costs the caller nothing but news.
        """
        low, high = self._backoff
        pause, version = low, ""
        while True:
            try:
                if not version:
                    listed = await self._client.list(
                        self._kind, self._namespace, keep=self._keep, **self._selectors
                    )
                    version = listed["metadata"]["resourceVersion"]
                    self._heard = asyncio.get_running_loop().time()
                    for change in self._replace(listed.get("items") or []):
                        yield change
                    yield Synced()
                watch = self._client.watch(self._kind, version, self._namespace, **self._selectors)
                async for event, item in watch:
                    version, pause = item["metadata"]["resourceVersion"], low
                    self._heard = asyncio.get_running_loop().time()
                    if event != "BOOKMARK":
                        yield self._apply(event, self._keep(item) if self._keep else item)
            except errors.ApiExpired:
                version = ""
            except errors.ApiError as error:
                self._on_error(error)
                if not isinstance(error, errors.ApiUnavailable):
                    version = ""
                await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 - jitter
                pause = min(pause * 2, high)

    def _replace(self, items: list[Object]) -> list[Change]:
        fresh = {key_of(item): item for item in items}
        gone = [Change(key, old, None) for key, old in self.cache.items() if key not in fresh]
        new = [
            Change(key, self.cache.get(key), item)
            for key, item in fresh.items()
            if _version(self.cache.get(key)) != _version(item)
        ]
        self.cache = fresh
        return gone + new

    def _apply(self, event: str, item: Object) -> Change:
        key = key_of(item)
        if event == "DELETED":
            return Change(key, self.cache.pop(key, item), None)
        old, self.cache[key] = self.cache.get(key), item
        return Change(key, old, item)


def key_of(item: Object) -> Key:
    """(namespace or "", name) of an object."""
    meta = item["metadata"]
    return meta.get("namespace", ""), meta["name"]


def _version(item: Object | None) -> tuple[str, str] | None:
    if item is None:
        return None
    meta = item["metadata"]
    return meta.get("uid", ""), meta.get("resourceVersion", "")
