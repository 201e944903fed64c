# SPDX-License-Identifier: Apache-2.0
"""Resets of devices of a host outside the cluster, by an annotation of their NodeUSBDevices.

Owns which request is brought to the host, and the Event that answers it, as an agent does for its
node (agent/resets.py). The host carries each out at most once, whoever leads when it is asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Protocol

from usbdra import resetword
from usbdra.errors import ConfigError, UsbdraError, shown
from usbdra.events import event_body, event_name
from usbdra.kube.custom import Contract
from usbdra.kube.errors import ApiError
from usbdra.kube.types import EVENT, Kind, Object
from usbdra.resetword import RESET, Request
from usbdra.slices.assigned import device_name
from usbdra.usbip.errands import Reset, ResetAnswer, can_be_asked

log = logging.getLogger(__name__)


Bring = Callable[[Reset], Awaitable[ResetAnswer]]
"""Has the host carry a reset out. Raises UsbdraError."""


class Api(Protocol):
    """The verb of KubeClient that this needs."""

    async def create(self, kind: Kind, body: Object, namespace: str | None = None) -> Object:
        """See KubeClient.create."""
        ...


class HostResetRequests:
    """Of one host."""

    def __init__(
        self,
        api: Api,
        contract: Contract,
        host: str,
        bring: Bring,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._api = api
        self._contract = contract
        self._host = host
        self._bring = bring
        self._clock = clock
        self._brought: dict[str, str] = {}
        self._asked: asyncio.Queue[tuple[Object, Request]] = asyncio.Queue()

    def look(self, item: Object) -> None:
        """A NodeUSBDevice of the host is there, or has changed."""
        annotations = item["metadata"].get("annotations") or {}
        word = annotations.get(self._contract.key(resetword.ANNOTATION))
        uid = str(item["metadata"]["uid"])
        if not word or self._brought.get(uid) == word:
            return
        try:
            request = resetword.read(str(word))
        except ConfigError as error:
            log.warning("a reset is not understood: %s", error, extra={"once": str(error)})
            return
        if request.fresh(self._clock()):
            self._brought[uid] = str(word)
            self._asked.put_nowait((item, request))

    async def run(self) -> None:
        """Bring what is asked for to the host, one by one, until cancelled."""
        while True:
            item, request = await self._asked.get()
            asked = Reset(device_name(item), request.word)
            try:
                if not can_be_asked(asked):
                    raise ConfigError(f"write {shown(request.token)} as 2026-01-31T12:00:00Z")
                answer = await self._bring(asked)
            except UsbdraError as error:
                answer = ResetAnswer(request.word, error.reason, f"not reset: {error}")
            await self._tell(item, request, answer)

    async def _tell(self, item: Object, request: Request, answer: ResetAnswer) -> None:
        meta, kind = item["metadata"], self._contract.node_device
        body = event_body(
            {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "name": meta["name"],
                "uid": meta["uid"],
            },
            name=event_name(),
            at=self._clock(),
            reporter=(self._contract.driver, self._host),
            action=resetword.ACTION,
            reason=answer.reason,
            note=request.note(answer.text),
            warning=answer.reason != RESET,
        )
        try:
            await self._api.create(EVENT, body, body["metadata"]["namespace"])
        except ApiError as error:
            log.warning("an event was not told: %s", error)
