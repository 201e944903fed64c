# SPDX-License-Identifier: Apache-2.0
"""Evicts pods whose claim lost a device and says `onReconnect: evict`.

Owns the choice of the pods and their eviction. Disruption budgets count: an eviction that one
refuses is tried again. A claim that was never ready evicts nobody, or its pods would go round and
round. Must not watch anything: claims are shown to it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from usbdra.controller.queue import WorkQueue
from usbdra.controller.uses import Consumer, consumers
from usbdra.errors import UsbdraError
from usbdra.events import event_body, event_name
from usbdra.kube import errors
from usbdra.kube.types import EVENT, Object
from usbdra.kube.verbs import Creates, Evicts
from usbdra.kube.watch import Key
from usbdra.plugin.config import EVICT
from usbdra.plugin.plan import read_claim
from usbdra.plugin.status import LOST

log = logging.getLogger(__name__)

REASON = "EvictedAfterLoss"


class Api(Evicts, Creates, Protocol):
    """The verbs of KubeClient that evictions need."""


class Evictions:
    """Show it claims by `put`; `queue` is to be run."""

    def __init__(
        self, api: Api, driver: str, identity: str, backoff: tuple[float, float] = (1.0, 60.0)
    ) -> None:
        self._api = api
        self._reporter = (driver, identity)
        self._lost: dict[str, tuple[Object, list[str]]] = {}
        self.queue = WorkQueue(self._evict, workers=2, backoff=backoff)

    def put(self, key: Key, claim: Object | None) -> None:
        """A claim as it is now, None when it is gone."""
        name = "/".join(key)
        if claim is not None and (devices := lost(claim, self._reporter[0])):
            self._lost[name] = claim, devices
            self.queue.add(name)
        else:
            self._lost.pop(name, None)

    async def _evict(self, name: str) -> None:
        if name not in self._lost:
            return
        claim, devices = self._lost[name]
        namespace = claim["metadata"]["namespace"]
        note = f"claim {claim['metadata']['name']} lost {', '.join(devices)}"
        for pod in consumers(claim):
            if await self._ask(pod, namespace):
                log.info("pod evicted", extra={"pod": f"{namespace}/{pod.name}", "note": note})
                await self._tell(pod, namespace, note)

    async def _ask(self, pod: Consumer, namespace: str) -> bool:
        """Whether the pod ends now. Raises ApiUnavailable where a budget refuses it (429)."""
        try:
            await self._api.evict(pod.name, namespace, uid=pod.uid)
        except (errors.ApiNotFound, errors.ApiConflict):  # gone, or another of its name
            return False
        return True

    async def _tell(self, pod: Consumer, namespace: str, note: str) -> None:
        about = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
        body = event_body(
            {**about, "namespace": namespace},
            name=event_name(),
            at=datetime.now(UTC),
            reporter=self._reporter,
            action="Evict",
            reason=REASON,
            note=note,
            warning=True,
        )
        try:
            await self._api.create(EVENT, body, namespace)
        except errors.ApiError as error:
            log.warning("an event was not told: %s", error)


def lost(claim: Mapping[str, Any], driver: str) -> list[str]:
    """Names of devices that the claim had, has lost, and whose pods are to be evicted for it."""
    gone = {
        (entry.get("pool"), entry.get("device"), entry.get("shareID")): str(data.get("name", ""))
        for entry in (claim.get("status") or {}).get("devices") or ()
        if entry.get("driver") == driver
        and isinstance(data := entry.get("data"), Mapping)
        and data.get(LOST) is True
    }
    if not gone:
        return []
    try:
        results = read_claim(claim, driver).results
    except UsbdraError:  # nobody could prepare it either
        return []
    keys = [(r.pool, r.device, r.share_id) for r in results if r.config.on_reconnect == EVICT]
    return [gone[key] for key in keys if key in gone]
