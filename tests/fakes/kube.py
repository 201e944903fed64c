# SPDX-License-Identifier: Apache-2.0
"""An API server in memory with the verbs of KubeClient: versions, conflicts, watches, faults.

Behaves as the real one where our code depends on it: optimistic concurrency, generated uid and
resourceVersion, DELETED with the last state, 410 for a version that is too old, fields of
disabled gates dropped in silence.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from copy import deepcopy
from typing import Any

from usbdra.kube import errors
from usbdra.kube.types import POD, RESOURCE_SLICE, Keep, Kind, Object

Event = tuple[int, str, Kind, Object]
Id = tuple[str, str, str]


class FakeKube:
    """See the module. `requests` lists (verb, plural, name) of every write."""

    def __init__(self) -> None:
        self.objects: dict[Id, Object] = {}
        self.requests: list[tuple[str, str, str]] = []
        self.oldest_watchable = 0
        self.down: errors.ApiError | None = None
        self.strip: Callable[[Kind, Object], None] = lambda kind, item: None
        self.after_write: Callable[[str, Kind, Object], None] = lambda verb, kind, item: None
        self._version = 0
        self._log: list[Event] = []
        self._news = asyncio.Event()

    def fail(self, error: errors.ApiError | None) -> None:
        """Every request fails so, running watches included, until called with None."""
        self.down = error
        self._tell()

    def put(self, kind: Kind, item: Object) -> Object:
        """Store as somebody else would, without counting a request."""
        meta = item["metadata"]
        key = _id(kind, meta.get("namespace"), meta["name"])
        stored = deepcopy(item)
        fresh = key not in self.objects
        old = {} if fresh else self.objects[key]["metadata"]
        stored["metadata"]["uid"] = old.get("uid") or meta.get("uid") or str(uuid.uuid4())
        self.strip(kind, stored)
        self._record("ADDED" if fresh else "MODIFIED", kind, stored)
        self.objects[key] = stored
        return deepcopy(stored)

    def drop(self, kind: Kind, name: str, namespace: str | None = None) -> None:
        """Delete as somebody else would."""
        item = self.objects.pop(_id(kind, namespace, name))
        self._record("DELETED", kind, item)

    def all(self, kind: Kind) -> list[Object]:
        """What is stored of a kind, in name order."""
        found = [item for key, item in sorted(self.objects.items()) if key[0] == kind.plural]
        return deepcopy(found)

    async def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object:
        await self._turn()
        return deepcopy(self._find(kind, name, namespace))

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        keep: Keep | None = None,
    ) -> Object:
        await self._turn()
        items = [
            deepcopy(item)
            for key, item in sorted(self.objects.items())
            if key[0] == kind.plural
            and (namespace in (None, key[1]))
            and _selected(item, labels, fields)
        ]
        items = [keep(item) for item in items] if keep else items
        return {"items": items, "metadata": {"resourceVersion": str(self._version)}}

    async def watch(
        self,
        kind: Kind,
        resource_version: str,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        seconds: int = 300,
    ) -> AsyncIterator[tuple[str, Object]]:
        await self._turn()
        seen = int(resource_version)
        if seen < self.oldest_watchable:
            raise errors.ApiExpired("watch", 410, "Expired", "too old resource version")
        while True:
            if self.down:
                raise self.down
            for version, event, of, item in list(self._log):
                if version > seen:
                    seen = version
                    if of == kind and _selected(item, labels, fields):
                        yield event, deepcopy(item)
            if seen == self._version:
                await self._news.wait()

    async def create(self, kind: Kind, body: Object, namespace: str | None = None) -> Object:
        await self._turn()
        name = body["metadata"]["name"]
        self.requests.append(("create", kind.plural, name))
        if _id(kind, namespace, name) in self.objects:
            raise errors.ApiConflict("create", 409, "AlreadyExists", f"{name} exists")
        return self._stored("create", kind, body, namespace)

    async def evict(self, name: str, namespace: str, *, uid: str) -> None:
        await self._turn()
        self.requests.append(("evict", POD.plural, name))
        if self._find(POD, name, namespace)["metadata"]["uid"] != uid:
            raise errors.ApiConflict("evict", 409, "Conflict", "another UID")
        self.drop(POD, name, namespace)

    async def replace(
        self, kind: Kind, body: Object, namespace: str | None = None, subresource: str = ""
    ) -> Object:
        await self._turn()
        meta = body["metadata"]
        self.requests.append(("replace", kind.plural, meta["name"]))
        old = self._find(kind, meta["name"], namespace)
        if meta.get("resourceVersion") != old["metadata"]["resourceVersion"]:
            raise errors.ApiConflict("replace", 409, "Conflict", "the object has been modified")
        if kind == RESOURCE_SLICE and _seen_by(body) != _seen_by(old):
            raise errors.ApiInvalid("replace", 422, "Invalid", "spec.nodeName: field is immutable")
        return self._stored("replace", kind, body, namespace)

    async def merge(
        self,
        kind: Kind,
        name: str,
        patch: Object,
        *,
        namespace: str | None = None,
        subresource: str = "",
    ) -> Object:
        await self._turn()
        self.requests.append(("merge", kind.plural, name))
        merged = _merged(self._find(kind, name, namespace), patch)
        return self._stored("merge", kind, merged, namespace)

    async def apply(
        self, kind: Kind, body: Object, *, manager: str, namespace: str | None = None,
        subresource: str = "", force: bool = True,
    ) -> Object:  # fmt: skip
        """Of one manager alone: what it said before and does not say again stays."""
        await self._turn()
        name, uid = body["metadata"]["name"], body["metadata"].get("uid")
        if subresource:
            self._find(kind, name, namespace)
        old = self.objects.get(_id(kind, namespace, name), {})
        if uid and uid != old.get("metadata", {}).get("uid"):
            raise errors.ApiConflict("apply", 409, "Conflict", "another object has this name")
        self.requests.append(("apply", kind.plural, name))
        return self._stored("apply", kind, _merged(old, body), namespace)

    async def delete(
        self, kind: Kind, name: str, namespace: str | None = None, *, uid: str = ""
    ) -> None:
        await self._turn()
        self.requests.append(("delete", kind.plural, name))
        item = self.objects.get(_id(kind, namespace, name))
        if item is None:
            return
        if uid and item["metadata"]["uid"] != uid:
            raise errors.ApiConflict("delete", 409, "Conflict", "another object has this name")
        self.drop(kind, name, namespace)
        self.after_write("delete", kind, item)

    def _stored(self, verb: str, kind: Kind, body: Object, namespace: str | None) -> Object:
        item = deepcopy(body)
        if namespace:
            item["metadata"]["namespace"] = namespace
        answer = self.put(kind, item)
        self.after_write(verb, kind, answer)
        return answer

    def _find(self, kind: Kind, name: str, namespace: str | None) -> Object:
        try:
            return self.objects[_id(kind, namespace, name)]
        except KeyError:
            raise errors.ApiNotFound("get", 404, "NotFound", f"{name} not found") from None

    def _record(self, event: str, kind: Kind, item: Object) -> None:
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)
        self._log.append((self._version, event, kind, deepcopy(item)))
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _turn(self) -> None:
        await asyncio.sleep(0)
        if self.down:
            raise self.down


def _seen_by(item: Object) -> Any:
    """Of a ResourceSlice: it cannot be changed (validation.ValidateResourceSliceUpdate)."""
    return item["spec"].get("nodeName")


def _merged(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = _merged(new.get(key), value)
    return new


def _id(kind: Kind, namespace: str | None, name: str) -> Id:
    return kind.plural, namespace or "", name


def _selected(item: Object, labels: str, fields: str) -> bool:
    have = item["metadata"].get("labels", {})
    wanted = dict(part.split("=", 1) for part in labels.split(",") if part)
    if any(have.get(key) != value for key, value in wanted.items()):
        return False
    for part in fields.split(","):
        if part:
            path, value = part.split("=", 1)
            at: Any = item
            for step in path.split("."):
                at = at.get(step, {})
            if at != value:
                return False
    return True
