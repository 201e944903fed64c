# SPDX-License-Identifier: Apache-2.0
"""The agent's own look at each request for a device, and the record of what was decided.

Owns the audit log (logger `usbdra.audit`, one line a decision) and who else hears of a refusal.
Wraps the broker that has the devices. Must not decide about claims (rightful.py does) or talk to
the API server.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Sequence

from usbdra.errors import UsbdraError
from usbdra.exporter.broker import Broker, Granted, GrantRequest, Peer
from usbdra.tracing.spans import span
from usbdra.types import RemoteDevice

audit = logging.getLogger("usbdra.audit")

Vouch = Callable[[Peer, socket.socket], Awaitable[Peer]]
"""The peer as we know it by its connection (evidence.py). Raises Refused."""

OnRefused = Callable[[GrantRequest, Peer, UsbdraError], None]
"""Hears of each refusal. Called between two steps of a request: it must not wait."""


class GuardedBroker:
    """See Broker. `vouch` None stands for a listener in this very process, whose word is ours."""

    def __init__(
        self,
        broker: Broker,
        *,
        vouch: Vouch | None = None,
        on_refused: OnRefused | None = None,
        count: Callable[[str], None] = lambda result: None,
    ) -> None:
        """count: hears of each decision, `ok`, the reason of a refusal, or `InternalError`."""
        self._broker = broker
        self._count = count
        self._vouch = vouch
        self._on_refused = on_refused

    async def inventory(self, peer: Peer) -> Sequence[RemoteDevice]:
        """What is here is no secret in a cluster: its slices say it too."""
        return await self._broker.inventory(peer)

    async def acquire(self, request: GrantRequest, peer: Peer, sock: socket.socket) -> Granted:
        """Vouch for the peer, then let the broker decide; either way there is one line of it."""
        started = time.monotonic()
        try:
            if self._vouch is not None:
                with span("vouch"):
                    peer = await self._vouch(peer, sock)
            granted = await self._broker.acquire(request, peer, sock)
        except UsbdraError as error:
            self._record("refused", request, peer, started, error)
            if self._on_refused is not None:
                self._on_refused(request, peer, error)
            raise
        except (Exception, asyncio.CancelledError):
            self._record("failed", request, peer, started, None)
            raise
        self._record("granted", request, peer, started, None, granted)
        return granted

    async def hand_over(self, granted: Granted, sock: socket.socket) -> None:
        """As the broker behind does."""
        try:
            await self._broker.hand_over(granted, sock)
        except UsbdraError as error:
            facts = _session(granted) | {"reason": error.reason, "detail": str(error)}
            audit.warning("device not handed over", extra={"decision": "failed", **facts})
            raise
        audit.info("device handed over", extra={"decision": "linked", **_session(granted)})

    async def abandon(self, granted: Granted) -> None:
        """As the broker behind does."""
        await self._broker.abandon(granted)
        audit.info("session given up", extra={"decision": "abandoned", **_session(granted)})

    def _record(
        self,
        decision: str,
        request: GrantRequest,
        peer: Peer,
        started: float,
        error: UsbdraError | None,
        granted: Granted | None = None,
    ) -> None:
        facts: dict[str, object] = {
            "decision": decision,
            "node": peer.node or "",
            "address": peer.address,
            "encrypted": peer.encrypted,
            "device": request.device,
            **_claim(request),
        }
        if granted is not None:
            facts |= _session(granted)
        if error is not None:
            facts |= {"reason": error.reason, "detail": str(error)}
        facts["seconds"] = round(time.monotonic() - started, 6)
        level = logging.INFO if decision == "granted" else logging.WARNING
        self._count("ok" if granted else error.reason if error else "InternalError")
        audit.log(level, "device %s", decision, extra=facts)


def _claim(request: GrantRequest) -> dict[str, object]:
    claim = request.claim
    if claim is None:
        return {}
    return {"namespace": claim.namespace, "claim": claim.name, "uid": claim.uid}


def _session(granted: Granted) -> dict[str, object]:
    device = granted.device
    return {
        "device": device.name or device.busid,
        "busid": device.busid,
        "session": granted.session,
    }
