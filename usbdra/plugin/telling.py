# SPDX-License-Identifier: Apache-2.0
"""Telling what happened to claims: status, Events, health.

Owns the words and the background tasks that carry them; nobody waits for a report. Must not
decide anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from datetime import UTC, datetime
from typing import Any

from usbdra.errors import StateError, UsbdraError
from usbdra.plugin import status
from usbdra.plugin.contracts import Reporter
from usbdra.plugin.health import DeviceHealth, Health, HealthBoard
from usbdra.state.claims import ClaimRecord, ClaimRef, DeviceRecord, Route
from usbdra.state.store import SetAside
from usbdra.types import ClaimUid

log = logging.getLogger(__name__)


class Telling:
    """Reports of one agent."""

    def __init__(self, reporter: Reporter, board: HealthBoard) -> None:
        self._reporter = reporter
        self._board = board
        self._tasks: set[asyncio.Task[Any]] = set()
        self._missing: dict[ClaimUid, set[tuple[str, int]]] = {}
        self._unready: set[ClaimUid] = set()
        self._since: dict[ClaimUid, dict[tuple[str, str, str | None], tuple[str, str]]] = {}

    def prepared(self, record: ClaimRecord) -> None:
        """The claim has all its devices, for the first time or again."""
        self.healthy(record)
        self._status(record)
        if any(device.route is Route.VHCI for device in record.devices):
            self._event(record.ref, "Attached", status.summary(record), warning=False)

    def healthy(self, record: ClaimRecord) -> None:
        """The claim's devices are in place."""
        self._missing.pop(record.ref.uid, None)
        self._unready.discard(record.ref.uid)
        for device in _single(record.devices):
            self._board.set(DeviceHealth(device.pool, device.device, Health.HEALTHY))

    def not_ready(self, record: ClaimRecord, error: UsbdraError) -> None:
        """A claim that was never ready cannot be made so now; the kubelet tries again."""
        self._unready.add(record.ref.uid)
        self._report(record, status.not_ready(record, error, datetime.now(UTC)))

    def given_up(self, ref: ClaimRef) -> None:
        """Nobody wants the claim any more, of which nothing was ever ready."""
        if ref.uid in self._unready:
            self._unready.discard(ref.uid)
            self._forget(ref)

    def released(self, record: ClaimRecord) -> None:
        """The claim has nothing any more."""
        self._missing.pop(record.ref.uid, None)
        self._unready.discard(record.ref.uid)
        for device in _single(record.devices):
            self._board.remove(device.pool, device.device)
        self._forget(record.ref)
        names = ", ".join(d.name for d in record.devices if d.route is Route.VHCI)
        if names:
            self._event(record.ref, "Detached", f"{names} given back", warning=False)

    def lost(self, record: ClaimRecord, keys: Iterable[tuple[str, int]]) -> None:
        """These devices of a prepared claim are not where they were; told once for each loss."""
        known = self._missing.setdefault(record.ref.uid, set())
        news = set(keys) - known
        if not news:
            return
        known |= news
        for device in record.devices:
            if device.key not in news:
                continue
            reason, text = status.loss(device)
            note = f"{reason}: {text}"
            for single in _single([device]):
                self._board.set(DeviceHealth(single.pool, single.device, Health.UNHEALTHY, note))
            log.warning("device lost", extra=_facts(record, device, reason))
            self._event(record.ref, reason, note, warning=True)
        self._status(record)

    def regained(self, record: ClaimRecord, missing: Iterable[tuple[str, int]]) -> None:
        """Of what the claim had lost, only these devices are missing still."""
        known = self._missing.get(record.ref.uid, set())
        back = known - set(missing)
        if not back:
            return
        known -= back
        for device in (d for d in record.devices if d.key in back):
            log.info("device is back", extra=_facts(record, device))
        for device in _single(d for d in record.devices if d.key in back):
            self._board.set(DeviceHealth(device.pool, device.device, Health.HEALTHY))
        self._status(record)

    def misses(self, uid: ClaimUid) -> bool:
        """Whether a loss of this claim was told that is not made good."""
        return uid in self._missing

    def failed(self, ref: ClaimRef, error: UsbdraError) -> None:
        """A call for the claim ended with this error."""
        facts = {"claim": str(ref), "reason": error.reason}
        log.warning("%s: %s", ref, error, extra=facts)
        self._event(ref, error.reason, str(error), warning=True)

    def restart_needed(self, record: ClaimRecord, text: str) -> None:
        """A running container could not be changed with its claim."""
        log.warning("%s: %s", record.ref, text)
        self._event(record.ref, "RestartNeeded", text, warning=True)

    def set_aside(self, bad: SetAside, found: ClaimRecord | None) -> None:
        """A record could not be read. found: what is known of its claim from elsewhere."""
        text = f"a record could not be used and is kept as {bad.path}: {bad.reason}"
        log.error("claim %s: %s", bad.name, text)
        if found is not None:
            self._event(found.ref, StateError.reason, text, warning=True)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work in the background until it is done or the agent stops."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def aclose(self) -> None:
        """Stop background work."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _status(self, record: ClaimRecord) -> None:
        missing = self._missing.get(record.ref.uid, set())
        self._report(record, status.device_statuses(record, datetime.now(UTC), missing))

    def _report(self, record: ClaimRecord, devices: list[dict[str, Any]]) -> None:
        """A condition that stays as it was keeps the time since when it is so."""
        since = self._since.setdefault(record.ref.uid, {})
        for entry in devices:
            key = (entry["pool"], entry["device"], entry.get("shareID"))
            for condition in entry["conditions"]:
                now = (condition["status"], condition["lastTransitionTime"])
                then = since.get(key, now)
                since[key] = then if then[0] == now[0] else now
                condition["lastTransitionTime"] = since[key][1]
        self.start(self._reporter.prepared(record, devices))

    def _forget(self, ref: ClaimRef) -> None:
        self._since.pop(ref.uid, None)
        self.start(self._reporter.released(ref))

    def _event(self, ref: ClaimRef, reason: str, text: str, *, warning: bool) -> None:
        self.start(self._reporter.event(ref, reason, text, warning))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("background work failed", exc_info=task.exception())


def _single(devices: Iterable[DeviceRecord]) -> Iterable[DeviceRecord]:
    """Devices whose published entry is theirs alone: a share's health says nothing of others."""
    return (device for device in devices if device.share_id is None and device.exclusive)


def _facts(record: ClaimRecord, device: DeviceRecord, reason: str = "") -> dict[str, object]:
    """For the log: whose it is, from where, by which link."""
    facts: dict[str, object] = {
        "claim": str(record.ref),
        "device": device.name,
        "node": device.node,
    }
    if device.held is not None and device.held.port is not None:
        facts["port"] = device.held.port
    if device.held is not None and device.held.link is not None:
        facts["link"] = str(device.held.link)
    return {**facts, "reason": reason} if reason else facts
