# SPDX-License-Identifier: Apache-2.0
"""Claim status and Events: what a claim's owner reads about its devices.

Owns one queue and one task. Reports never delay a claim: they are queued, the newest status of a
claim wins, and an API server that is away is asked again with growing pauses. Must not decide
what happened; callers say it in the stable words of errors.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from usbdra.agent.outbox import BACKOFF, keep_sending
from usbdra.events import MAX_NOTE, event_body, event_name
from usbdra.kube import errors
from usbdra.kube.types import EVENT, RESOURCE_CLAIM, Object
from usbdra.kube.verbs import Applies, Creates, Gets, Merges
from usbdra.state.claims import ClaimRecord, ClaimRef
from usbdra.tracing.spans import Span, current, span, under
from usbdra.types import NodeName

log = logging.getLogger(__name__)

MAX_QUEUE = 1024
REPEAT_SECONDS = 60.0
"""The same Event of the same claim is not told again within this time."""


class Api(Gets, Creates, Applies, Merges, Protocol):
    """The verbs of KubeClient that reporting needs."""


@dataclass(frozen=True, slots=True)
class _Note:
    ref: ClaimRef
    reason: str
    message: str
    warning: bool
    at: datetime


@dataclass(frozen=True, slots=True, eq=False)
class _Status:
    """What `status.devices` should say, and the trace that it is a step of."""

    devices: Sequence[Mapping[str, Any]]
    span: Span | None


class KubeReporter:
    """The plugin's Reporter on the API server. Run `run`; everything else only queues."""

    def __init__(
        self, api: Api, driver: str, node: NodeName, *, backoff: tuple[float, float] = BACKOFF
    ) -> None:
        self._api = api
        self._driver = driver
        self._node = node
        self._backoff = backoff
        self._status: OrderedDict[ClaimRef, _Status] = OrderedDict()
        self._notes: deque[_Note] = deque(maxlen=MAX_QUEUE)
        self._told: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._work = asyncio.Event()

    async def prepared(self, record: ClaimRecord, devices: Sequence[Mapping[str, Any]]) -> None:
        """Queue `status.devices` of a claim that is ready."""
        self._queue_status(record.ref, devices)

    async def released(self, ref: ClaimRef) -> None:
        """Queue the removal of our `status.devices` of this claim."""
        self._queue_status(ref, ())

    async def event(self, ref: ClaimRef, reason: str, message: str, warning: bool) -> None:
        """Queue an Event on the claim and its pods, unless it was told a moment ago."""
        key, now = (ref.uid, reason, message), asyncio.get_running_loop().time()
        if now - self._told.get(key, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return
        self._told[key] = now
        self._told.move_to_end(key)
        if len(self._told) > MAX_QUEUE:
            self._told.popitem(last=False)
        self._notes.append(_Note(ref, reason, message[:MAX_NOTE], warning, datetime.now(UTC)))
        self._work.set()

    async def run(self) -> None:
        """Tell the API server what is queued, for ever."""
        await keep_sending(self._work, self._flush, self._backoff, log, "claim reports")

    @property
    def waiting(self) -> int:
        """Reports that the API server has not yet."""
        return len(self._status) + len(self._notes)

    async def flushed(self) -> None:
        """One attempt to send everything that is queued: for an orderly stop."""
        try:
            await self._flush()
        except errors.ApiError as error:
            log.warning("claim reports lost: %s", error)

    def _queue_status(self, ref: ClaimRef, devices: Sequence[Mapping[str, Any]]) -> None:
        self._status[ref] = _Status(devices, current())
        self._status.move_to_end(ref)
        if len(self._status) > MAX_QUEUE:
            self._status.popitem(last=False)
        self._work.set()

    async def _flush(self) -> None:
        while self._status:
            ref, status = next(iter(self._status.items()))
            with under(status.span), span("status"):
                await self._quietly(self._put_status(ref, status.devices))
            if self._status.get(ref) is status:  # nothing newer came while this was under way
                del self._status[ref]
        while self._notes:
            await self._quietly(self._put_event(self._notes[0]))
            self._notes.popleft()

    async def _quietly(self, request: Any) -> None:
        """Errors that a repeat cannot mend are logged and dropped: the claim may be gone."""
        try:
            await request
        except errors.ApiUnavailable:
            raise
        except errors.ApiNotFound:
            log.debug("report dropped: the claim is gone")
        except errors.ApiError as error:
            log.warning("report dropped: %s", error)

    async def _put_status(self, ref: ClaimRef, devices: Sequence[Mapping[str, Any]]) -> None:
        """Server-side apply under this node's manager: only our own entries come and go.

        The uid makes a claim of the same name but another life a conflict (KEP-4817).
        `usedOn` is what the policy usbdra-claim-status holds an agent to where the allocation
        is good for many nodes.
        """
        said = [
            {
                "driver": self._driver,
                **device,
                "data": {**device.get("data", {}), "usedOn": self._node},
            }
            for device in devices
        ]
        body: Object = {
            "metadata": {"name": ref.name, "namespace": ref.namespace, "uid": ref.uid},
            "status": {"devices": said},
        }
        try:
            await self._api.apply(
                RESOURCE_CLAIM,
                body,
                manager=f"{self._driver}/{self._node}"[:128],
                namespace=ref.namespace,
                subresource="status",
            )
        except errors.ApiInvalid:
            await self._merge_status(ref, said)

    async def _merge_status(self, ref: ClaimRef, said: list[Object]) -> None:
        """The same by a merge patch, which leaves the rest of the status letter by letter.

        Apply writes the opaque parameters of an allocation with their keys sorted, and the API
        (1.37) refuses that as a change when the claim was created with them in another order. A
        merge patch replaces the list: it holds everybody's entries, of the version that was read.
        """
        claim = await self._api.get(RESOURCE_CLAIM, ref.name, ref.namespace)
        meta = claim["metadata"]
        if meta["uid"] != ref.uid:
            return
        kept = [
            entry
            for entry in (claim.get("status") or {}).get("devices") or ()
            if entry.get("driver") != self._driver
            or (entry.get("data") or {}).get("usedOn", self._node) != self._node
        ]
        patch: Object = {
            "metadata": {"resourceVersion": meta["resourceVersion"]},
            "status": {"devices": [*kept, *said]},
        }
        await self._api.merge(
            RESOURCE_CLAIM, ref.name, patch, namespace=ref.namespace, subresource="status"
        )

    async def _put_event(self, note: _Note) -> None:
        subjects = [_regarding("ResourceClaim", "resource.k8s.io/v1", note.ref.name, note.ref.uid)]
        try:
            claim = await self._api.get(RESOURCE_CLAIM, note.ref.name, note.ref.namespace)
        except errors.ApiNotFound:
            claim = {}
        users = (claim.get("status") or {}).get("reservedFor") or ()
        pods = (user for user in users if user.get("resource") == "pods")
        subjects += [_regarding("Pod", "v1", pod["name"], pod["uid"]) for pod in pods]
        for subject in subjects:
            body = self._event(note, subject)
            await self._api.create(EVENT, body, note.ref.namespace)

    def _event(self, note: _Note, regarding: Object) -> Object:
        return event_body(
            {**regarding, "namespace": note.ref.namespace},
            name=event_name(),
            at=note.at,
            reporter=(self._driver, self._node),
            action="Prepare",
            reason=note.reason,
            note=note.message,
            warning=note.warning,
        )


def _regarding(kind: str, version: str, name: str, uid: str) -> Object:
    return {"kind": kind, "apiVersion": version, "name": name, "uid": uid}
