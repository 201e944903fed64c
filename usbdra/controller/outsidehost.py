# SPDX-License-Identifier: Apache-2.0
"""One host outside the cluster: what it has is looked up, published, and whether it answers told.

Owns when the host is looked at: again at once where it answers when it has news
(outsidelink.py), by the clock where it is silent or too old for that. Must not decide who may have
a device.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from usbdra.controller.acting import FIELD_MANAGER
from usbdra.controller.conditions import Condition, merged
from usbdra.controller.outsidelink import Seen
from usbdra.controller.outsideresets import Bring, HostResetRequests
from usbdra.errors import UsbdraError
from usbdra.kube import errors
from usbdra.kube.custom import Contract
from usbdra.kube.types import Object
from usbdra.kube.verbs import Applies
from usbdra.kube.watch import Change, Reflector
from usbdra.slices.assigned import assigned_to, device_name, taints
from usbdra.slices.build import Taint
from usbdra.slices.outside import HostOwner, build_outside
from usbdra.slices.publish import Api as SliceApi
from usbdra.slices.publish import SlicePublisher
from usbdra.types import DeviceName, RemoteDevice

log = logging.getLogger(__name__)

AGAIN_SECONDS = 2.0
"""Until the second look at one that did not; if that fails too, it is not ready."""
CALM = (0.1, 2.0)
"""Shortest and longest pause after news, in seconds: what changes without an end costs no more."""


class Api(SliceApi, Applies, Protocol):
    """The verbs of KubeClient that following a host needs."""


Look = Callable[[], Awaitable[Seen]]
"""Asks the host; where it tells of news, returns when there is some. Raises UsbdraError."""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What is known of a host. Times are seconds since the epoch, None where not known: seen, when
    it answered last; until, the end of its certificate."""

    host: str
    ready: bool
    devices: int
    seen: float | None
    until: float | None


class OutsideHost:
    """Run it for as long as the object is there with this address. `item`: the object."""

    def __init__(
        self,
        api: Api,
        contract: Contract,
        item: Object,
        look: Look,
        reset: Bring,
        *,
        assignment: str,
        seconds: float,
        silent: float,
        again: float = AGAIN_SECONDS,
        on_look: Callable[[str], None] = lambda result: None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """reset: has the host reset a device. assignment: Off, Optional or Required, as agents are
        told it. seconds: between looks at a host that tells nothing; silent: at one that does not
        answer. on_look: hears of each look, `ok` or its error's reason."""
        self._api = api
        self._contract = contract
        self._host = str(item["metadata"]["name"])
        self._uid = str(item["metadata"]["uid"])
        self._status: Object = dict(item.get("status") or {})
        self._look = look
        self._assignment = assignment
        self._seconds = seconds
        self._pauses = (silent, again)
        self._on_look = on_look
        self._clock = clock
        self._seen: datetime | None = None
        self._devices: Sequence[RemoteDevice] = ()
        self._answers = True
        self._tells = False
        self._calm = CALM[0]
        self._missed_one = False
        self._assigned: dict[DeviceName, str] = {}
        self._known = asyncio.Event()
        kind = contract.host
        owner = HostOwner(self._host, self._uid, contract.driver, kind.api_version, kind.kind)
        self._publisher = SlicePublisher(api, owner, self._build)
        self._resets = HostResetRequests(api, contract, self._host, reset)

    @property
    def facts(self) -> HostFacts:
        """As of now; before the first answer what an earlier controller wrote down."""
        until = self._status.get("certificateUntil")
        seen = self._seen
        return HostFacts(
            host=self._host,
            ready=self._answers and seen is not None,
            devices=int(self._status.get("devices") or 0),
            seen=seen.timestamp() if seen is not None else None,
            until=_time_of(until) if until else None,
        )

    async def run(self) -> None:
        """Follow the host until cancelled."""
        async with asyncio.TaskGroup() as group:
            if self._assignment == "Off":
                self._known.set()
            group.create_task(self._follow_devices())
            group.create_task(self._resets.run())
            # What an earlier controller published stays until the host has answered this one.
            await self._until_seen()
            await self._known.wait()
            self._publisher.wake()
            group.create_task(self._publisher.run())
            await self._keep_looking()

    async def _until_seen(self) -> None:
        while not await self._tried():
            await self._missed()

    async def _keep_looking(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._calm if self._tells else self._seconds)
            begun = loop.time()
            while not await self._tried():
                await self._missed()
            quick = loop.time() - begun < CALM[1]
            self._calm = min(self._calm * 2, CALM[1]) if quick else CALM[0]

    async def _missed(self) -> None:
        silent, again = self._pauses
        await asyncio.sleep(again if self._answers else silent)

    async def _tried(self) -> bool:
        """One look, and what follows. The first that fails may be a packet that was lost."""
        try:
            seen = await self._look()
        except UsbdraError as error:
            self._on_look(error.reason)
            if self._missed_one:
                await self._tell(False, error.reason, str(error), self._count)
                self._set(self._devices, answers=False)
            self._missed_one = True
            return False
        self._on_look("ok")
        self._seen = self._clock()
        self._missed_one, self._tells = False, seen.tells
        self._set(seen.devices, answers=True)
        count = len(seen.devices)
        text = f"offers {count} device{'' if count == 1 else 's'}"
        await self._tell(True, "Ready", text, count, seen.until)
        return True

    @property
    def _count(self) -> int:
        """Devices of the last answer, be it to an earlier controller."""
        return len(self._devices) if self._seen else int(self._status.get("devices") or 0)

    def _set(self, devices: Sequence[RemoteDevice], *, answers: bool) -> None:
        if (tuple(devices), answers) != (tuple(self._devices), self._answers):
            self._devices, self._answers = devices, answers
            self._publisher.wake()

    def _build(self, dropped: frozenset[str]) -> Sequence[Object]:
        taints = {one.name: self._taints(one.name) for one in self._devices if one.name}
        return build_outside(self._host, self._contract.group, self._devices, taints)

    def _taints(self, device: DeviceName) -> Sequence[Taint]:
        """The namespace fence, as agents put it on their devices; and nobody is to be given what
        cannot be reached."""
        found = [] if self._answers else [Taint(self._contract.key("unreachable"), "")]
        if self._assignment != "Off":
            required, assigned = self._assignment == "Required", self._assigned.get(device)
            found.extend(taints(self._contract, assigned, required=required))
        return found

    async def _follow_devices(self) -> None:
        reflector = Reflector(
            self._api,
            self._contract.node_device,
            fields=f"status.host={self._host}",
            on_error=self._complain,
        )
        async for change in reflector.run():
            if isinstance(change, Change) and change.new is not None:
                self._resets.look(change.new)
            now = {device_name(item): assigned_to(item) for item in reflector.cache.values()}
            if now != self._assigned or not self._known.is_set():
                self._assigned = now
                self._publisher.wake()
            self._known.set()

    async def _tell(self, ready: bool, reason: str, text: str, count: int, until: str = "") -> None:
        """Write the status if it differs; one that cannot be written is written next time."""
        wanted = [Condition("Ready", ready, reason, text)]
        stored = self._status.get("conditions") or ()
        status: Object = {
            "devices": count,
            "conditions": merged(stored, wanted, self._clock()),
        }
        if until or self._status.get("certificateUntil"):
            status["certificateUntil"] = until or self._status["certificateUntil"]
        if status == self._status:
            return
        log.info("host %s: %s", self._host, text, extra={"host": self._host, "reason": reason})
        body: Mapping[str, object] = {
            "metadata": {"name": self._host, "uid": self._uid},
            "status": status,
        }
        try:
            await self._api.apply(
                self._contract.host, dict(body), manager=FIELD_MANAGER, subresource="status"
            )
        except errors.ApiError as error:
            self._complain(error)
        else:
            self._status = status

    def _complain(self, error: errors.ApiError) -> None:
        log.warning("host %s: %s", self._host, error)


def _time_of(text: str) -> float | None:
    """Seconds since the epoch of a time as TLS says it; None for anything else, by whose hand ever
    that came into the status."""
    import ssl

    try:
        return float(ssl.cert_time_to_seconds(text))
    except ValueError:
        return None
