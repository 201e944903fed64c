# SPDX-License-Identifier: Apache-2.0
"""Keeps the API's ResourceSlices of this node equal to what the node offers.

Owns the watch on our own slices (never on anybody else's: a label selects them) and the one
task that writes. Woken by a changed offer or by a change of our slices in the API, so an outside
delete is mended at once and nothing is polled. Must not know how slices are built.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from usbdra.kube import errors
from usbdra.kube.types import NODE, RESOURCE_SLICE, Object
from usbdra.kube.verbs import Creates, Deletes, Gets, Lister, Replaces
from usbdra.kube.watch import Key, Reflector, Synced

from . import limits
from .build import label_selector, owned
from .reconcile import Delete, Write, covers, dropped_fields, plan

log = logging.getLogger(__name__)

Build = Callable[[frozenset[str]], Sequence[Object]]
"""Slices to publish, given the fields that the server does not keep."""


class Api(Lister, Gets, Creates, Replaces, Deletes, Protocol):
    """The verbs of KubeClient that publishing needs: those of a watch, and writes."""


class Owning(Protocol):
    """Whose slices are published: Owner, or slices/outside.py's HostOwner."""

    @property
    def driver(self) -> str:
        """The DRA driver's name."""

    @property
    def selector(self) -> str:
        """The label selector of exactly these slices."""

    def own(self, manifest: Object) -> Object:
        """The manifest with labels and owner reference."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The Node the slices belong to: they go with it (owner reference)."""

    node: str
    uid: str
    driver: str

    @classmethod
    async def of_node(cls, api: Api, node: str, driver: str) -> Owner:
        """Read the Node's UID, however long the API server is away."""
        pause = 0.5
        while True:
            try:
                return cls(node, str((await api.get(NODE, node))["metadata"]["uid"]), driver)
            except errors.ApiError as error:
                log.warning("slices wait for the API server: %s", error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 30.0)

    @property
    def labels(self) -> dict[str, str]:
        """The labels our slices carry and are found by."""
        return {
            "app.kubernetes.io/managed-by": "usbdra",
            f"{self.driver}/node": limits.shorten(self.node, limits.MAX_LABEL_LENGTH),
        }

    @property
    def selector(self) -> str:
        """The label selector of exactly our slices."""
        return label_selector(self.labels)

    def own(self, manifest: Object) -> Object:
        """The manifest with labels and owner reference."""
        reference = {"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": self.uid}
        return owned(manifest, self.labels, reference)


@dataclass(slots=True)
class Stats:
    """What publishing has cost so far; for metrics and tests."""

    writes: int = 0
    deletes: int = 0
    errors: int = 0
    dropped: frozenset[str] = field(default_factory=frozenset)


class SlicePublisher:
    """One per node. `wake` after every change of the offers; `run` until cancelled."""

    def __init__(
        self,
        api: Api,
        owner: Owning,
        build: Build,
        *,
        backoff: tuple[float, float] = (0.2, 30.0),
    ) -> None:
        self.stats = Stats()
        self._api = api
        self._owner = owner
        self._build = build
        self._backoff = backoff
        self._reflector = Reflector(
            api, RESOURCE_SLICE, labels=owner.selector, on_error=self._note, backoff=backoff
        )
        self._wake = asyncio.Event()
        self._synced = asyncio.Event()
        self._published = asyncio.Event()
        self._ours: dict[Key, tuple[Object, Object]] = {}
        self._gone: deque[str] = deque(maxlen=1024)

    def wake(self) -> None:
        """The offers changed: compare and write what differs."""
        self._wake.set()

    async def published(self) -> None:
        """Wait until the API has shown all that was wanted at least once."""
        await self._published.wait()

    async def run(self) -> None:
        """Publish and keep published; ends only by cancellation."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._mirror())
            group.create_task(self._write())

    async def _mirror(self) -> None:
        async for change in self._reflector.run():
            if isinstance(change, Synced):
                self._synced.set()
            elif change.new is None and change.old is not None:
                self._gone.append(change.old["metadata"]["uid"])
            self._wake.set()

    async def _write(self) -> None:
        low, high = self._backoff
        pause = low
        await self._synced.wait()
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._reconcile()
            except errors.ApiError as error:
                self._note(error)
                self._wake.set()
                await asyncio.sleep(pause)
                pause = min(pause * 2, high)
            else:
                pause = low
                self._published.set()

    async def _reconcile(self) -> None:
        """Write until a whole pass finds nothing to do or the server drops nothing new."""
        while True:
            dropped = self.stats.dropped
            wanted = [self._owner.own(manifest) for manifest in self._build(dropped)]
            for step in plan(wanted, self._view(wanted)):
                await self._carry_out(step)
                if self.stats.dropped != dropped:
                    break
            if self.stats.dropped == dropped:
                return
            log.warning(
                "the API server does not keep %s of ResourceSlices: publishing without",
                ", ".join(sorted(self.stats.dropped - dropped)),
            )

    def _view(self, wanted: Sequence[Object]) -> list[Object]:
        """The stored slices, a server's omission of a known field taken as agreed (R52).

        A slice that is exactly what the server made of our last write, while we still want the
        same, counts as equal whatever fields it lost.
        """
        wants = {item["metadata"]["name"]: item for item in wanted}
        view = []
        for key, stored in self._reflector.cache.items():
            sent, answered = self._ours.get(key, ({}, {}))
            want = wants.get(key[1])
            same = want is not None and sent and _same_but_generation(sent, want)
            agreed = want is not None and same and covers(stored["spec"], answered["spec"])
            view.append(_as_if_kept(stored, want) if agreed and want is not None else stored)
        return view

    async def _carry_out(self, step: Write | Delete) -> None:
        if isinstance(step, Delete):
            meta = step.stored["metadata"]
            await self._api.delete(RESOURCE_SLICE, meta["name"], uid=meta.get("uid", ""))
            self.stats.deletes += 1
            self._reflector.cache.pop(("", meta["name"]), None)
            return
        answer = await self._store(step)
        self.stats.writes += 1
        self.stats.dropped |= dropped_fields(answer, step.wanted)
        key = ("", answer["metadata"]["name"])
        self._ours[key] = (step.wanted, answer)
        # The watch may have told of a later change, or the end, of what we just wrote.
        cached = self._reflector.cache.get(key)
        if answer["metadata"]["uid"] in self._gone or (cached and _newer(cached, answer)):
            self._wake.set()
        else:
            self._reflector.cache[key] = answer

    async def _store(self, step: Write) -> Object:
        """Create or replace; a name taken by a slice without our labels is taken over."""
        wanted = step.wanted
        if step.stored is None:
            try:
                return await self._api.create(RESOURCE_SLICE, wanted)
            except errors.ApiConflict:
                stored = await self._api.get(RESOURCE_SLICE, wanted["metadata"]["name"])
                if stored["spec"]["driver"] != self._owner.driver:
                    raise
        else:
            stored = step.stored
        if stored["spec"].get("nodeName") != wanted["spec"].get("nodeName"):
            return await self._make_anew(stored, wanted)
        version = stored["metadata"]["resourceVersion"]
        body = {**wanted, "metadata": {**wanted["metadata"], "resourceVersion": version}}
        try:
            return await self._api.replace(RESOURCE_SLICE, body)
        except errors.ApiNotFound:
            return await self._api.create(RESOURCE_SLICE, wanted)

    async def _make_anew(self, stored: Object, wanted: Object) -> Object:
        """Another visibility: a slice's nodeName cannot be changed, nor given to it later."""
        meta = stored["metadata"]
        await self._api.delete(RESOURCE_SLICE, meta["name"], uid=meta["uid"])
        return await self._api.create(RESOURCE_SLICE, wanted)

    def _note(self, error: errors.ApiError) -> None:
        self.stats.errors += 1
        log.warning("ResourceSlices: %s", error)


def _as_if_kept(stored: Object, want: Object) -> Object:
    """The stored slice with the spec that was wanted, at the generation it has."""
    pool = {**want["spec"]["pool"], "generation": stored["spec"]["pool"]["generation"]}
    return {**stored, "spec": {**want["spec"], "pool": pool}}


def _newer(a: Object, b: Object) -> bool:
    """Whether `a` was stored after `b`: resource versions are ordered numbers (KEP-5504)."""
    return int(a["metadata"]["resourceVersion"]) > int(b["metadata"]["resourceVersion"])


def _same_but_generation(a: Object, b: Object) -> bool:
    """Equal manifests, the pool's generation left out."""
    pools = [{**x["spec"]["pool"], "generation": 0} for x in (a, b)]
    specs = [{**x["spec"], "pool": pool} for x, pool in zip((a, b), pools, strict=True)]
    return specs[0] == specs[1]
