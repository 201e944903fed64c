# SPDX-License-Identifier: Apache-2.0
"""Carries out resets that were asked for by an annotation of a NodeUSBDevice, each at most once.

Owns the records. Reading a request and answering it are kube/resets.py's. Must not touch the device
itself (resetting.py does).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from usbdra import resetword
from usbdra.agent.nodeobjects import NodeObjects
from usbdra.agent.options import AgentOptions
from usbdra.errors import StateError, UsbdraError
from usbdra.kube import resets
from usbdra.kube.custom import Contract
from usbdra.kube.types import Object
from usbdra.kube.verbs import Creates
from usbdra.kube.watch import Change, Key, Synced
from usbdra.locks import ProcessLock
from usbdra.resetword import RESET, Request
from usbdra.slices.assigned import device_name
from usbdra.state.resets import ResetRecord, ResetSchema
from usbdra.state.store import RecordStore
from usbdra.types import DeviceName, NodeName

log = logging.getLogger(__name__)

Act = Callable[[DeviceName, bool], Awaitable[None]]
"""Resets a device of this node, by force or not. Raises UsbdraError."""


class Resets:
    """Run it. `lock` is one for all agents of the node: two may see one request in an upgrade."""

    def __init__(
        self,
        api: Creates,
        objects: NodeObjects,
        names: Contract,
        node: NodeName,
        store: RecordStore[ResetRecord],
        lock: ProcessLock,
        act: Act,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._api = api
        self._names = names
        self._node = node
        self._store = store
        self._lock = lock
        self._act = act
        self._now = now
        self._changed: dict[Key, Object] = {}
        self._any_changed = asyncio.Event()
        objects.listen(self._hear)

    @classmethod
    def of_node(cls, api: Creates, objects: NodeObjects, options: AgentOptions, act: Act) -> Resets:
        """With records and lock where this node keeps them."""
        store = RecordStore(options.state_dir / "resets", ResetSchema())
        lock = ProcessLock(options.run_dir / "resets.lock")
        return cls(api, objects, Contract(options.group), options.node, store, lock, act)

    async def run(self) -> None:
        """Carry out what is asked until cancelled; one request at a time."""
        try:
            self._forget_old()
        except StateError as error:
            log.warning("old records of resets stay: %s", error)
        while True:
            await self._any_changed.wait()
            self._any_changed.clear()
            while self._changed:
                await self._look(self._changed.pop(next(iter(self._changed))))

    def _hear(self, event: Change | Synced) -> None:
        """Of an object that changes during a reset its last state counts."""
        if isinstance(event, Change) and event.new is not None:
            self._changed[event.key] = event.new
            self._any_changed.set()

    def _forget_old(self) -> None:
        """Records of requests that nobody would carry out any more, with or without a record."""
        records, aside = self._store.load_all()
        for name, record in records.items():
            if not resetword.read(record.token).fresh(self._now()):
                self._store.delete(name)
        for bad in aside:
            log.error("record of a reset is kept as %s: %s", bad.path, bad.reason)

    async def _look(self, item: Object) -> None:
        request = resets.asked_by(item, self._names, self._now())
        if request is None:
            return
        try:
            async with self._lock.held():
                await self._once(item, request)
        except StateError as error:  # without a record it could be done twice: not at all, then
            await self._tell(item, request, error.reason, f"not reset: {error}")

    async def _once(self, item: Object, request: Request) -> None:
        name = device_name(item)
        record = self._store.load(name)
        if record is not None and record.token == request.token:
            if not record.done:
                self._store.save(name, ResetRecord(request.token, done=True))
                text = f"the agent of node {self._node} ended while it reset the device; ask again"
                await self._tell(item, request, "Interrupted", text)
            return
        self._store.save(name, ResetRecord(request.token))
        try:
            await self._act(name, request.force)
        except UsbdraError as error:
            reason, text = error.reason, f"not reset: {error}"
        else:
            reason, text = RESET, f"reset by node {self._node}"
        self._store.save(name, ResetRecord(request.token, done=True))
        await self._tell(item, request, reason, text)

    async def _tell(self, item: Object, request: Request, reason: str, text: str) -> None:
        log.info("reset of %s: %s", item["metadata"]["name"], text, extra={"reason": reason})
        await resets.answer(
            self._api, self._names, self._node, item, request, reason, text, at=self._now()
        )
