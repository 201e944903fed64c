# SPDX-License-Identifier: Apache-2.0
"""Certificates for nodes: answers the CertificateSigningRequests of agents.

Owns the answers: approved and signed, or denied with the reason. Whether to sign is review.py's
decision, with which CA authority.py's. A request that is approved and not signed (a controller
that was killed between the two) is reviewed again before it is signed.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from usbdra.controller.queue import WorkQueue
from usbdra.controller.review import Rules, node_of, review
from usbdra.errors import Refused
from usbdra.kube import errors
from usbdra.kube.types import CSR, NODE, Kind, Object
from usbdra.kube.watch import Change, Lister, Reflector
from usbdra.pki import trust
from usbdra.pki.authority import Pair, sign_node
from usbdra.pki.request import NodeRequest

log = logging.getLogger(__name__)

APPROVED, DENIED, FAILED = "Approved", "Denied", "Failed"

Signing = Callable[[], Awaitable[Pair]]
"""The CA to sign with."""


class Api(Lister, Protocol):
    """The verbs of KubeClient that a signer needs."""

    async def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object:
        """See KubeClient.get."""
        ...

    async def replace(
        self, kind: Kind, body: Object, namespace: str | None = None, subresource: str = ""
    ) -> Object:
        """See KubeClient.replace."""
        ...


class Signer:
    """Run it on the leader. `signing` None: only approve, somebody else's signer signs."""

    def __init__(
        self,
        api: Api,
        rules: Rules,
        signing: Signing | None,
        lifetime: timedelta = timedelta(hours=24),
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._api = api
        self._rules = rules
        self._signing = signing
        self._lifetime = lifetime
        self._clock = clock
        self._requests = Reflector(
            api, CSR, fields=f"spec.signerName={rules.signer}", on_error=_complain
        )
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
            request = review(csr, await self._node(node_of(csr, self._rules)), self._rules)
        except Refused as error:
            await self._refuse(csr, str(error))
            return
        if APPROVED not in _conditions(csr):
            text = f"asked for by the agent of node {request.node}"
            csr = await self._condition(csr, APPROVED, "AgentOfNode", text, "approval")
        if self._signing is not None:
            await self._sign(csr, request, await self._signing())

    async def _sign(self, csr: Object, request: NodeRequest, authority: Pair) -> None:
        lifetime = self._lifetime
        if (asked := csr["spec"].get("expirationSeconds")) is not None:
            lifetime = min(lifetime, timedelta(seconds=asked))
        cert = sign_node(
            authority,
            request.node,
            request.addresses,
            request.public_key,
            self._clock(),
            lifetime,
            request.node_uid,
        )
        pem = base64.b64encode(trust.write_bundle([cert])).decode()
        status = {**(csr.get("status") or {}), "certificate": pem}
        await self._api.replace(CSR, {**csr, "status": status}, subresource="status")
        log.info(
            "certificate signed",
            extra={"node": request.node, "until": f"{cert.not_valid_after_utc:%Y-%m-%dT%H:%MZ}"},
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

    async def _node(self, name: str) -> Object | None:
        try:
            return await self._api.get(NODE, name)
        except errors.ApiNotFound:
            return None


def _conditions(csr: Mapping[str, Any]) -> set[str]:
    return {one["type"] for one in (csr.get("status") or {}).get("conditions") or ()}


def _answered(csr: Mapping[str, Any]) -> bool:
    done = _conditions(csr) & {DENIED, FAILED}
    return bool(done) or bool((csr.get("status") or {}).get("certificate"))


def _complain(error: errors.ApiError) -> None:
    log.warning("certificate requests are not watched: %s", error)
