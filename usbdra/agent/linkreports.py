# SPDX-License-Identifier: Apache-2.0
"""Puts what links carry into their claims' status.devices, rarely: `kubectl usb top` reads it.

Owns the clock of it, which runs only while a link does, and the joining with what the plugin says
of the claim. No port is opened and no right is needed for it: who may read a claim may read what
its link does. Must not say whether a device is ready: the plugin's entries are passed on as they
are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from usbdra.agent.linkrates import Numbers, Sample, numbers
from usbdra.errors import KernelUnsupported, UsbdraError
from usbdra.kube.types import RESOURCE_CLAIM
from usbdra.kube.verbs import Gets
from usbdra.plugin.contracts import Reporter
from usbdra.state.claims import ClaimRecord, ClaimRef, DeviceRecord
from usbdra.transport.measure import Counters
from usbdra.types import ClaimUid, Endpoints

log = logging.getLogger(__name__)

Entries = Sequence[Mapping[str, Any]]
Key = tuple[Any, Any, Any]


class LinkReports:
    """The plugin's Reporter, passed on to `reporter`, with links' numbers added. Run `run`.

    `count` gives every link of the node now, and may block. `seconds`: between two looks.
    """

    def __init__(
        self,
        reporter: Reporter,
        api: Gets,
        driver: str,
        records: Callable[[], Iterable[ClaimRecord]],
        count: Callable[[], Mapping[Endpoints, Counters]],
        *,
        seconds: float,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._reporter = reporter
        self._api = api
        self._driver = driver
        self._records = records
        self._count = count
        self._seconds = seconds
        self._now = now
        self._entries: dict[ClaimUid, Entries] = {}
        self._samples: dict[Endpoints, Sample] = {}
        self._told: dict[Endpoints, tuple[Numbers, dict[str, Any]]] = {}
        self._news = asyncio.Event()

    async def prepared(self, record: ClaimRecord, devices: Entries) -> None:
        """See Reporter."""
        self._entries[record.ref.uid] = devices
        self._news.set()
        await self._reporter.prepared(record, self._joined(record, devices))

    async def released(self, ref: ClaimRef) -> None:
        """See Reporter."""
        self._entries.pop(ref.uid, None)
        await self._reporter.released(ref)

    async def event(self, ref: ClaimRef, reason: str, message: str, warning: bool) -> None:
        """See Reporter."""
        await self._reporter.event(ref, reason, message, warning)

    async def run(self) -> None:
        """Look at links until cancelled; without any, sleep until a claim has one."""
        while True:
            self._news.clear()
            if not self._links():
                self._samples.clear()
                self._told.clear()
                await self._news.wait()
                continue
            try:
                await self.look()
            except KernelUnsupported as error:
                log.warning("links are not measured: %s", error, extra={"once": "measure"})
            await asyncio.sleep(self._seconds)

    async def look(self) -> None:
        """One look at all links, and what is worth it told. Raises KernelUnsupported."""
        counters = await asyncio.to_thread(self._count)
        at = asyncio.get_running_loop().time()
        links, uids = self._links(), {record.ref.uid for record in self._records()}
        self._entries = {uid: kept for uid, kept in self._entries.items() if uid in uids}
        self._told = {link: told for link, told in self._told.items() if link in links}
        fresh = {link: Sample(at, counters[link]) for link in links if link in counters}
        worth: dict[ClaimUid, ClaimRecord] = {}
        for link, sample in fresh.items():
            before = self._samples.get(link)
            found = numbers(before, sample) if before is not None else None
            told = self._told.get(link)
            if found is not None and found.differ(told[0] if told else None):
                self._told[link] = (found, found.data(self._now()))
                worth[links[link].ref.uid] = links[link]
        self._samples = fresh
        for record in worth.values():
            await self._tell(record)

    def _links(self) -> dict[Endpoints, ClaimRecord]:
        return {
            device.held.link: record
            for record in self._records()
            for device in record.devices
            if device.held is not None and device.held.link is not None
        }

    async def _tell(self, record: ClaimRecord) -> None:
        entries = self._entries.get(record.ref.uid)
        if entries is None:  # reported by an agent before us: only the API has it
            stored = await self._stored(record.ref)
            if all(other.ref.uid != record.ref.uid for other in self._records()):
                return  # released meanwhile
            entries = self._entries.setdefault(record.ref.uid, stored) if stored else None
        if entries:
            await self._reporter.prepared(record, self._joined(record, entries))

    async def _stored(self, ref: ClaimRef) -> Entries:
        """Our entries of the claim's status, in the form of the plugin's."""
        try:
            claim = await self._api.get(RESOURCE_CLAIM, ref.name, ref.namespace)
        except UsbdraError as error:
            log.debug("%s is not told of its link: %s", ref, error)
            return ()
        if claim["metadata"].get("uid") != ref.uid:
            return ()
        entries = (claim.get("status") or {}).get("devices") or ()
        return [
            {key: value for key, value in entry.items() if key != "driver"}
            for entry in entries
            if entry.get("driver") == self._driver
        ]

    def _joined(self, record: ClaimRecord, entries: Entries) -> list[Mapping[str, Any]]:
        found = {}
        for device in record.devices:
            told = self._told.get(device.held.link) if device.held and device.held.link else None
            if told is not None:
                found[_key(device)] = told[1]
        return [_with(entry, found.get(_entry_key(entry))) for entry in entries]


def _key(device: DeviceRecord) -> Key:
    return device.pool, device.device, device.share_id


def _entry_key(entry: Mapping[str, Any]) -> Key:
    return entry["pool"], entry["device"], entry.get("shareID")


def _with(entry: Mapping[str, Any], link: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The entry with these numbers; one that is not ready has no link to speak of."""
    data = {key: value for key, value in (entry.get("data") or {}).items() if key != "link"}
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in entry["conditions"])
    if link is not None and ready:
        data["link"] = dict(link)
    return {**entry, "data": data}
