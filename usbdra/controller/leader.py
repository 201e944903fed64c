# SPDX-License-Identifier: Apache-2.0
"""One leader among the controllers, by a Lease of coordination.k8s.io.

Owns the Lease and when work may run. Must not know what the work is. As in client-go, another's
Lease counts as expired when it did not change for its whole duration on our own clock: clocks of
two machines are never compared. A leader that cannot renew stops its work before its Lease can
be taken.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from usbdra.kube import errors
from usbdra.kube.types import LEASE, Object
from usbdra.kube.verbs import Creates, Gets, Replaces

log = logging.getLogger(__name__)


class Api(Gets, Creates, Replaces, Protocol):
    """The verbs of KubeClient that an election needs."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds: how long a Lease holds, when a leader that cannot renew gives up, how often."""

    duration: float = 15.0
    deadline: float = 10.0
    every: float = 3.0


class Leader:
    """One candidate. `on_seen` is called after each answer of the API about the Lease."""

    def __init__(
        self,
        api: Api,
        name: str,
        namespace: str,
        identity: str,
        *,
        times: Times | None = None,
        on_seen: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.leading = False
        self._api = api
        self._name = name
        self._namespace = namespace
        self._identity = identity
        self._times = times or Times()
        self._on_seen = on_seen
        self._clock = clock
        self._lease: Object = {}
        self._changed_at = 0.0

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait until this candidate leads, then work until the lead is lost.

        Returns when it was lost; an error of the work, and cancellation, pass through. Either
        way the work has ended, and the Lease is given back where it still was ours.
        """
        await self._acquire()
        log.info("leading", extra={"identity": self._identity})
        self.leading = True
        running = asyncio.ensure_future(work())
        renewing = asyncio.create_task(self._renew())
        try:
            await asyncio.wait((running, renewing), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
        finally:
            self.leading = False
            lost = renewing.done()
            for task in (running, renewing):
                task.cancel()
            await asyncio.gather(running, renewing, return_exceptions=True)
            if not lost:
                await self._release()
        log.warning("not leading any more", extra={"identity": self._identity})

    async def _acquire(self) -> None:
        while True:
            try:
                if await self._try():
                    return
            except errors.ApiConflict:
                log.debug("somebody else took the lease")
            except errors.ApiError as error:
                log.warning("no leader can be chosen: %s", error, extra={"once": "lease"})
            await asyncio.sleep(self._times.every)

    async def _try(self) -> bool:
        """Take the Lease if it is free or expired. Raises ApiConflict when another was faster."""
        try:
            found = await self._api.get(LEASE, self._name, self._namespace)
        except errors.ApiNotFound:
            self._lease = await self._api.create(LEASE, self._body({}), self._namespace)
            self._on_seen()
            return True
        self._on_seen()
        if found.get("spec") != self._lease.get("spec"):
            self._lease, self._changed_at = found, self._clock()
        spec = found.get("spec") or {}
        holder = spec.get("holderIdentity")
        lasts = float(spec.get("leaseDurationSeconds") or 0)
        if holder and holder != self._identity and self._clock() < self._changed_at + lasts:
            return False
        self._lease = await self._api.replace(LEASE, self._body(found), self._namespace)
        return True

    async def _renew(self) -> None:
        """Renew until that fails for the deadline, or somebody else has the Lease."""
        renewed = self._clock()
        while True:
            await asyncio.sleep(self._times.every)
            left = renewed + self._times.deadline - self._clock()
            try:
                async with asyncio.timeout(max(left, 0.0)):
                    body = self._body(self._lease)
                    self._lease = await self._api.replace(LEASE, body, self._namespace)
            except errors.ApiConflict:
                if not await self._still_ours():
                    return
            except errors.ApiNotFound:
                return
            except (errors.ApiError, TimeoutError) as error:
                if self._clock() >= renewed + self._times.deadline:
                    return
                log.warning("the lease is not renewed: %s", error)
            else:
                renewed = self._clock()
                self._on_seen()

    async def _still_ours(self) -> bool:
        """After a conflict: somebody wrote the Lease; whether we are still its holder."""
        try:
            self._lease = await self._api.get(LEASE, self._name, self._namespace)
        except errors.ApiError:
            return False
        return bool((self._lease.get("spec") or {}).get("holderIdentity") == self._identity)

    async def _release(self) -> None:
        """Let the next one lead at once; a failure costs it the Lease's duration."""
        body = {**self._lease, "spec": {**self._lease["spec"], "holderIdentity": ""}}
        try:
            async with asyncio.timeout(2.0):
                await self._api.replace(LEASE, body, self._namespace)
        except (errors.ApiError, TimeoutError) as error:
            log.warning("the lease was not given back: %s", error)

    def _body(self, found: Object) -> Object:
        """The Lease as ours: a renewal, or a take-over with its time and count."""
        spec: dict[str, Any] = dict(found.get("spec") or {})
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        if spec.get("holderIdentity") != self._identity:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + bool(found)
        spec |= {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._times.duration)),
            "renewTime": now,
        }
        fresh: Object = {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
        }
        return {**(found or fresh), "spec": spec}
