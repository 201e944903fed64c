# SPDX-License-Identifier: Apache-2.0
"""The part that keeps NodeUSBDevices, USBDevices and their claims true.

Owns the watches, the queue and the carrying out of decisions. Decides nothing: reconcile.py does.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial

from usbdra.controller.acting import carry_out
from usbdra.controller.acts import Act, Apply, Patch, What
from usbdra.controller.evictions import Evictions
from usbdra.controller.mirror import Mirror, follow, trimmed
from usbdra.controller.news import changes, event
from usbdra.controller.parts import Office
from usbdra.controller.published import read_slice
from usbdra.controller.queue import WorkQueue
from usbdra.controller.reconcile import Namespace, decide
from usbdra.controller.uses import results
from usbdra.controller.world import World
from usbdra.events import event_name
from usbdra.kube import errors
from usbdra.kube.types import (
    CLAIM_TEMPLATE,
    EVENT,
    NAMESPACE,
    NODE,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    Keep,
    Kind,
    Object,
)
from usbdra.kube.watch import Key
from usbdra.types import outside_node

log = logging.getLogger(__name__)


class DevicesPart:
    """See the module; one use."""

    def __init__(self, office: Office) -> None:
        options = office.options
        contract = options.contract
        self._api = office.api
        self._driver = contract.driver
        self._identity = options.identity
        self._world = World(contract, timedelta(seconds=options.absent_grace))
        self._kinds: dict[What, Kind] = {
            What.NODE_DEVICE: contract.node_device,
            What.DEVICE: contract.device,
            What.CLAIM: RESOURCE_CLAIM,
            What.TEMPLATE: CLAIM_TEMPLATE,
            What.POD: POD,
            What.ATTACHMENT: contract.attachment,
        }
        self._endings = office.endings
        metering = office.metering
        self.queue = WorkQueue(
            self._reconcile, workers=options.workers, on_done=partial(metering.looked, "devices")
        )
        self.evictions = Evictions(self._api, self._driver, self._identity)
        metering.follow_queue("devices", lambda: (self.queue.depth, self.queue.failing))
        metering.follow_world(self._world.numbers)
        office.dump.add("devices", self.queue.state)
        office.dump.add("evictions", self.evictions.queue.state)
        office.dump.add("world", lambda: asdict(self._world.numbers()))
        trims: dict[What, Keep] = {
            What.NODE_DEVICE: lambda item: trimmed(item, "spec", "status"),
            What.DEVICE: lambda item: trimmed(item, "status"),
            What.CLAIM: self._claim,
            What.TEMPLATE: trimmed,
            What.ATTACHMENT: lambda item: trimmed(item, "spec", "status"),
        }
        self._mirrors = {
            what: Mirror(self._api, self._kinds[what], trim, partial(self._object, what))
            for what, trim in trims.items()
        }
        self._sources = [
            *self._mirrors.values(),
            Mirror(
                self._api,
                RESOURCE_SLICE,
                self._slice,
                self._put_slice,
                fields=f"spec.driver={self._driver}",
            ),
            Mirror(self._api, NODE, _ready, self._put_node),
            Mirror(self._api, NAMESPACE, _namespace, self._put_namespace),
        ]
        if options.outside is not None:
            self._sources.append(Mirror(self._api, contract.host, _ready, self._put_host))

    async def run(self) -> None:
        """Follow the cluster; work starts when all of it has been seen once."""
        await follow(self._sources, self._work)

    async def _work(self) -> None:
        log.info("devices are known", extra={"devices": self._world.count(What.NODE_DEVICE)})
        async with asyncio.TaskGroup() as group:
            group.create_task(self.queue.run())
            group.create_task(self.evictions.queue.run())

    async def _reconcile(self, name: str) -> float | None:
        """Decide about one device and do it; what was written is looked at again."""
        decision = decide(self._world.observe(name, datetime.now(UTC)))
        for act in decision.acts:
            await self._do(act)
        return decision.again

    async def _do(self, act: Act) -> None:
        before: Object = {}
        if isinstance(act, Apply):  # as it is before the write: a watch may be fast
            key = (act.namespace or "", act.body["metadata"]["name"])
            before = self._world.get(act.what, key) or {}
        stored = await carry_out(self._api, self._kinds[act.what], act)
        if stored is None:
            return
        self._mirrors[act.what].absorb(stored)
        if isinstance(act, Apply) and act.subresource:
            await self._tell(act.what, before, stored)
        elif isinstance(act, Patch):
            log.info("assignment ended with its namespace", extra={"device": act.name})

    async def _tell(self, what: What, before: Object, stored: Object) -> None:
        """Events of a status that changed; one that cannot be told is lost."""
        meta, kind = stored["metadata"], self._kinds[what]
        about = {"apiVersion": kind.api_version, "kind": kind.kind, "name": meta["name"]}
        about |= {key: meta[key] for key in ("namespace", "uid") if key in meta}
        conditions = stored["status"].get("conditions") or ()
        for news in changes(what, about, before.get("status") or {}, conditions):
            facts = {"device": meta["name"], "reason": news.reason, "note": news.note}
            where = {"namespace": meta["namespace"]} if "namespace" in meta else {}
            log.info("state changed", extra={"kind": kind.kind, **facts, **where})
            body = event(news, event_name(), datetime.now(UTC), self._driver, self._identity)
            try:
                await self._api.create(EVENT, body, body["metadata"]["namespace"])
            except errors.ApiError as error:
                log.warning("an event was not told: %s", error)

    def _object(self, what: What, key: Key, item: Object | None) -> None:
        self._look_at(self._world.put(what, key, item))
        if what is What.CLAIM:
            self.evictions.put(key, item)
            if item is None or "status" not in item:  # see _claim: it has no device of ours
                self._endings.tell(key)

    def _put_slice(self, key: Key, item: Object | None) -> None:
        self._look_at(self._world.put_slice(key[1], item["part"] if item else None))

    def _put_node(self, key: Key, item: Object | None) -> None:
        self._look_at(self._world.put_node(key[1], item["ready"] if item else None))
        if item is None:
            self._endings.tell(key)

    def _put_host(self, key: Key, item: Object | None) -> None:
        place = outside_node(key[1])
        self._look_at(self._world.put_node(place, item["ready"] if item else None))

    def _put_namespace(self, key: Key, item: Object | None) -> None:
        found = Namespace(item["metadata"]["uid"], item["active"]) if item else None
        self._look_at(self._world.put_namespace(key[1], found))

    def _look_at(self, names: set[str]) -> None:
        for name in names:
            self.queue.add(name)

    def _slice(self, item: Object) -> Object:
        return {**_identity(item), "part": read_slice(item, self._driver)}

    def _claim(self, item: Object) -> Object:
        """Claims of other drivers are nobody's business here, and may be many."""
        return trimmed(item, "status") if results(item, self._driver) else trimmed(item)


def _identity(item: Object) -> Object:
    meta = item["metadata"]
    return {"metadata": {key: meta[key] for key in ("name", "uid", "resourceVersion")}}


def _ready(item: Object) -> Object:
    found = (item.get("status") or {}).get("conditions") or ()
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in found)
    return {**_identity(item), "ready": ready}


def _namespace(item: Object) -> Object:
    active = not item["metadata"].get("deletionTimestamp")
    return {**_identity(item), "active": active}
