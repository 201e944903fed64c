# SPDX-License-Identifier: Apache-2.0
"""The cluster's certificate authority: made when there is none, rotated, its bundle published.

Owns the Secret and the ConfigMap of castore.py, and the order: a CA is written down, then
published, then signs. What is next is rotation.py's decision. Must not sign (certificates.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from usbdra.controller import castore, rotation
from usbdra.controller.queue import WorkQueue
from usbdra.errors import UsbdraError
from usbdra.kube.reading import read
from usbdra.kube.types import CONFIG_MAP, SECRET, Kind, Object
from usbdra.kube.verbs import Creates, Gets, Lister, Replaces
from usbdra.kube.watch import Reflector
from usbdra.pki.authority import Pair, make_authority

log = logging.getLogger(__name__)

LOOK_AGAIN = 24 * 3600.0
"""Longest pause in seconds: a clock that is set meanwhile must not cost a rotation."""

_KEY = "certificate authority"


class Api(Lister, Gets, Creates, Replaces, Protocol):
    """The verbs of KubeClient that the authority needs."""


class ClusterAuthority:
    """Run it on the leader; `signing` has the CA once it is published."""

    def __init__(
        self,
        api: Api,
        names: castore.Names,
        group: str,
        *,
        lifetime: timedelta = timedelta(days=365),
        timing: rotation.Timing | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._api = api
        self._names = names
        self._group = group
        self._lifetime = lifetime
        self._timing = timing or rotation.Timing()
        self._clock = clock
        self._ready = asyncio.Event()
        self._signing: Pair | None = None
        self._queue = WorkQueue(lambda _: self.step(), workers=1)

    async def run(self) -> None:
        """Keep both objects until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run())
            group.create_task(self._follow(SECRET, self._names.secret))
            group.create_task(self._follow(CONFIG_MAP, self._names.bundle))

    async def signing(self) -> Pair:
        """The CA to sign with, as soon as nodes can know of it."""
        await self._ready.wait()
        assert self._signing is not None
        return self._signing

    @property
    def signing_now(self) -> Pair | None:
        """The CA that signs; None before the first look."""
        return self._signing

    async def step(self) -> float:
        """One look and at most one step of a rotation; seconds until the next look.

        Raises ApiError, and ConfigError for a Secret that cannot be used.
        """
        secret = await self._read(SECRET, self._names.secret)
        bundle = await self._read(CONFIG_MAP, self._names.bundle)
        found = castore.authorities_of(secret) if secret else None
        now = self._clock()
        asked = bool(secret) and castore.rotation_asked(secret or {}, self._group)
        plan = rotation.plan(
            found, castore.published(bundle), now, self._timing, self._make, asked=asked
        )
        if plan.authorities is not found:
            begun = plan.authorities.next is not None
            wanted = castore.secret_of(
                plan.authorities, self._names, self._group, secret, asked=asked and not begun
            )
            await self._write(SECRET, wanted, secret)
            log.info("certificate authority: %s", _story(plan.authorities))
        await self._publish(plan.authorities, bundle)
        self._signing = plan.authorities.signing
        self._ready.set()
        return min((plan.again - now).total_seconds(), LOOK_AGAIN)

    async def _publish(self, authorities: rotation.Authorities, old: Object | None) -> None:
        wanted = castore.bundle_of(authorities, self._names, old)
        if old is None or wanted["data"] != old.get("data"):
            await self._write(CONFIG_MAP, wanted, old)

    async def _read(self, kind: Kind, name: str) -> Object | None:
        return await read(self._api, kind, name, self._names.namespace)

    async def _write(self, kind: Kind, body: Object, old: Object | None) -> None:
        """Create, or replace the very version that was read: two writers never mix."""
        write = self._api.create if old is None else self._api.replace
        await write(kind, body, self._names.namespace)

    async def _follow(self, kind: Kind, name: str) -> None:
        reflector = Reflector(
            self._api,
            kind,
            self._names.namespace,
            fields=f"metadata.name={name}",
            on_error=_complain,
        )
        async for _ in reflector.run():
            self._queue.add(_KEY)

    def _make(self, now: datetime) -> Pair:
        return make_authority(f"usbdra CA of {now:%Y-%m-%d %H:%M}", now, self._lifetime)


def _story(authorities: rotation.Authorities) -> str:
    if authorities.next is not None:
        return "a new CA is believed and will sign later"
    if authorities.previous is not None:
        return "the new CA signs; the previous one is still believed"
    return f"one CA, until {authorities.signing.cert.not_valid_after_utc:%Y-%m-%d}"


def _complain(error: UsbdraError) -> None:
    log.warning("the certificate authority is not watched: %s", error)
