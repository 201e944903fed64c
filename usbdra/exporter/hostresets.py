# SPDX-License-Identifier: Apache-2.0
"""Resets of devices of a host outside the cluster, which its controller asks for: each once.

Owns that a request is carried out at most once, for what this host offers, and its answer while
this program runs: the controller asks again when it did not hear one. Must not touch the device.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from usbdra import resetword
from usbdra.errors import NotFound, UsbdraError
from usbdra.exporter.broker import Broker, Peer
from usbdra.resetword import RESET
from usbdra.state.resets import ResetRecord
from usbdra.state.store import RecordStore
from usbdra.types import DeviceName
from usbdra.usbip.errands import Reset, ResetAnswer

log = logging.getLogger(__name__)

Act = Callable[[DeviceName, bool], Awaitable[None]]
"""Resets a device of this host, by force or not. Raises UsbdraError."""
TEXT = "reset by its host"


class HostResets:
    """One reset at a time; a controller whose link broke meanwhile asks again, and waits.

    offered: what the cluster may know of, and nothing else is reset for it.
    """

    def __init__(
        self,
        offered: Broker,
        store: RecordStore[ResetRecord],
        act: Act,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._offered = offered
        self._store = store
        self._act = act
        self._clock = clock
        self._answers: dict[str, ResetAnswer] = {}
        self._turn = asyncio.Lock()

    async def __call__(self, peer: Peer, asked: Reset) -> ResetAnswer:
        """Carry out the request, unless that was done before; what became of it."""
        async with self._turn:
            known = self._answers.get(asked.device)
            if known is not None and known.word == asked.word:
                return known
            try:
                reason, text = await self._once(peer, asked)
            except UsbdraError as error:
                reason, text = error.reason, f"not reset: {error}"
            log.info("reset of %s: %s", asked.device, text, extra={"reason": reason})
            self._answers[asked.device] = answer = ResetAnswer(asked.word, reason, text)
            return answer

    async def _once(self, peer: Peer, asked: Reset) -> tuple[str, str]:
        """Raises UsbdraError."""
        request = resetword.read(asked.word)
        if not request.fresh(self._clock()):
            return "TooLate", "not reset: the request is too old, or this host's clock is wrong"
        if asked.device not in {one.name for one in await self._offered.inventory(peer)}:
            raise NotFound(f"this host offers no device {asked.device}")
        record = self._store.load(asked.device)
        if record is not None and record.token == request.token:
            if record.done:
                return RESET, TEXT
            return "Interrupted", "usbdra serve ended while it reset the device; ask again"
        self._store.save(asked.device, ResetRecord(request.token))
        await self._act(DeviceName(asked.device), request.force)
        self._store.save(asked.device, ResetRecord(request.token, done=True))
        return RESET, TEXT
