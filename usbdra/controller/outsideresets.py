# SPDX-License-Identifier: Apache-2.0
"""Resets of devices of a host outside the cluster, by an annotation of their NodeUSBDevices.

Owns which request is brought to the host, as an agent does for its node (agent/resets.py). Reading
a request and answering it are kube/resets.py's. The host carries each out at most once, whoever
leads when it is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from usbdra.errors import ConfigError, UsbdraError, shown
from usbdra.kube import resets
from usbdra.kube.custom import Contract
from usbdra.kube.types import Object
from usbdra.kube.verbs import Creates
from usbdra.resetword import Request
from usbdra.slices.assigned import device_name
from usbdra.usbip.errands import Reset, ResetAnswer, can_be_asked

Bring = Callable[[Reset], Awaitable[ResetAnswer]]
"""Has the host carry a reset out. Raises UsbdraError."""


class HostResetRequests:
    """Of one host."""

    def __init__(
        self,
        api: Creates,
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
        request = resets.asked_by(item, self._contract, self._clock())
        uid = str(item["metadata"]["uid"])
        if request is not None and self._brought.get(uid) != request.word:
            self._brought[uid] = request.word
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
        names, at = self._contract, self._clock()
        await resets.answer(
            self._api, names, self._host, item, request, answer.reason, answer.text, at=at
        )
