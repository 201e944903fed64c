# SPDX-License-Identifier: Apache-2.0
"""Answers CertificateSigningRequests of one signer: approved and signed, or denied with the reason.

Owns the answers' way through the API. What a request is answered is its Look's decision. A request
that is approved and not signed (a controller that was killed between the two) is looked at again
before it is signed.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from usbdra.controller.queue import WorkQueue
from usbdra.errors import Refused
from usbdra.kube import errors
from usbdra.kube.types import CSR, Object
from usbdra.kube.verbs import Gets, Lister, Replaces
from usbdra.kube.watch import Change, Reflector
from usbdra.pki import trust
from usbdra.pki.authority import Pair

if TYPE_CHECKING:
    from cryptography import x509

log = logging.getLogger(__name__)

APPROVED, DENIED, FAILED = "Approved", "Denied", "Failed"

Signing = Callable[[], Awaitable[Pair]]
"""The CA to sign with."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A request that may be answered. `reason` and `text` are our approval's; without a reason it
    is for somebody else to approve. `sign` takes the CA, the time and how long it is to hold."""

    who: str
    sign: Callable[[Pair, datetime, timedelta], x509.Certificate]
    reason: str = ""
    text: str = ""


Look = Callable[[Object], Awaitable[Wish]]
"""Decides about a request. Raises Refused with the reason, ApiError."""


class Api(Lister, Gets, Replaces, Protocol):
    """The verbs of KubeClient that answering needs."""


class Requests:
    """Run it on the leader. `signing` None: only approve, somebody else's signer signs."""

    def __init__(
        self,
        api: Api,
        signer: str,
        look: Look,
        signing: Signing | None,
        lifetime: timedelta,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._api = api
        self._look = look
        self._signing = signing
        self._lifetime = lifetime
        self._clock = clock
        self._requests = Reflector(api, CSR, fields=f"spec.signerName={signer}", on_error=_complain)
        self._queue = WorkQueue(self.answer, workers=2)

    async def run(self) -> None:
        """Answer requests until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run())
            async for change in self._requests.run():
                if isinstance(change, Change) and change.new is not None:
                    self._queue.add(change.key[1])

    async def answer(self, name: str) -> None:
        """Look at one request and answer it, if it waits for an answer. Raises ApiError."""
        csr = self._requests.cache.get(("", name))
        if csr is None or _answered(csr):
            return
        try:
            await self._answer(csr)
        except errors.ApiConflict:
            log.debug("request %s is a newer one by now: the watch brings it", name)

    async def _answer(self, csr: Object) -> None:
        try:
            wish = await self._look(csr)
        except Refused as error:
            await self._refuse(csr, str(error))
            return
        if APPROVED not in _conditions(csr):
            if not wish.reason:
                return
            csr = await self._condition(csr, APPROVED, wish.reason, wish.text, "approval")
        if self._signing is not None:
            await self._sign(csr, wish, await self._signing())

    async def _sign(self, csr: Object, wish: Wish, authority: Pair) -> None:
        lifetime = self._lifetime
        if (asked := csr["spec"].get("expirationSeconds")) is not None:
            lifetime = min(lifetime, timedelta(seconds=asked))
        cert = wish.sign(authority, self._clock(), lifetime)
        pem = base64.b64encode(trust.write_bundle([cert])).decode()
        status = {**(csr.get("status") or {}), "certificate": pem}
        await self._api.replace(CSR, {**csr, "status": status}, subresource="status")
        log.info(
            "certificate signed",
            extra={"node": wish.who, "until": f"{cert.not_valid_after_utc:%Y-%m-%dT%H:%MZ}"},
        )

    async def _refuse(self, csr: Object, why: str) -> None:
        """Deny; what somebody else approved can only be declared failed."""
        name, user = csr["metadata"]["name"], csr["spec"].get("username")
        log.warning("certificate refused: %s", why, extra={"request": name, "requester": user})
        if APPROVED in _conditions(csr):
            await self._condition(csr, FAILED, "Refused", why, "status")
        else:
            await self._condition(csr, DENIED, "Refused", why, "approval")

    async def _condition(
        self, csr: Object, kind: str, reason: str, message: str, subresource: str
    ) -> Object:
        new = {"type": kind, "status": "True", "reason": reason, "message": message}
        status = {**(csr.get("status") or {})}
        status["conditions"] = [*(status.get("conditions") or ()), new]
        return await self._api.replace(CSR, {**csr, "status": status}, subresource=subresource)


def _conditions(csr: Mapping[str, Any]) -> set[str]:
    return {one["type"] for one in (csr.get("status") or {}).get("conditions") or ()}


def _answered(csr: Mapping[str, Any]) -> bool:
    done = _conditions(csr) & {DENIED, FAILED}
    return bool(done) or bool((csr.get("status") or {}).get("certificate"))


def _complain(error: errors.ApiError) -> None:
    log.warning("certificate requests are not watched: %s", error)
