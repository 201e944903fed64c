# SPDX-License-Identifier: Apache-2.0
"""What is said on one accepted connection: requests, policy, broker, replies.

Owns the order of an import (acquire, hand over, reply) and its undoing, and the log line of each
decision. Must not accept, authenticate or close connections (server.py does).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from usbdra.errors import (
    ExportFailed,
    LinkError,
    NotFound,
    PeerClosed,
    PeerTimeout,
    Refused,
    UsbdraError,
)
from usbdra.exporter.broker import Broker, Granted, GrantRequest, Peer
from usbdra.exporter.policy import AccessPolicy
from usbdra.exporter.refusals import refusal_of
from usbdra.tracing.spans import OFF, Kind, Tracer
from usbdra.transport import sockets
from usbdra.transport.ending import LinkEnd
from usbdra.transport.sockets import LinkTimeouts
from usbdra.types import RemoteDevice
from usbdra.usbip.extension import GrantReply, Inventory, InventoryRequest
from usbdra.usbip.session import (
    BadRequest,
    DevlistRequest,
    ImportRequest,
    Request,
    ServerSession,
)

_log = logging.getLogger(__name__)


Visited = Callable[[Peer, InventoryRequest], Awaitable[Inventory]]
"""Takes what a cluster's controller brings; what it is told beside the devices."""


async def nothing_brought(peer: Peer, request: InventoryRequest) -> Inventory:
    """For who is visited by nobody: what is brought is left where it is."""
    return Inventory()


class Limits(Protocol):
    """The part of the server's limits that holds for one connection."""

    @property
    def requests(self) -> int:
        """How many requests at the most."""

    @property
    def serve(self) -> float:
        """Seconds for authorising, binding and handing over."""


class Conversation:
    """Serves one authenticated connection. Borrows sock."""

    def __init__(
        self,
        sock: socket.socket,
        peer: Peer,
        broker: Broker,
        policy: AccessPolicy,
        limits: Limits,
        timeouts: LinkTimeouts,
        visited: Visited | None = None,
        tracer: Tracer = OFF,
    ) -> None:
        self._tracer = tracer
        self._visited = visited or nothing_brought
        self._sock = sock
        self._peer = peer
        self._broker = broker
        self._policy = policy
        self._limits = limits
        self._timeouts = timeouts
        self._session = ServerSession(extensions=peer.authenticated)
        self.granted = False
        self._left = False

    async def run(self, heard: Callable[[], None] = lambda: None) -> None:
        """Answer requests until the peer leaves, has its device or has asked often enough.

        `heard` is called with each whole request. Raises LinkError for what goes wrong on the
        link; refusals are answers, not errors.
        """
        for number in range(self._limits.requests):
            request = await self._read_request(first=number == 0)
            if request is None:
                return
            heard()
            await self._answer(request)
            if self.granted or self._left:
                return

    async def _read_request(self, *, first: bool) -> Request | None:
        """The next request; None when the peer left, or after the first fell silent."""
        session = self._session
        deadline = sockets.deadline_in(self._timeouts.request)
        while True:
            try:
                data = await sockets.read_exactly(
                    self._sock, session.bytes_needed, deadline, "a request"
                )
            except PeerClosed as exc:
                if session.at_boundary and exc.received == 0:
                    return None
                raise
            except PeerTimeout:
                if session.at_boundary and not first:
                    return None
                raise
            try:
                request = session.feed(data)
            except BadRequest as exc:
                await self._send(exc.reply)
                raise
            if request is not None:
                return request

    async def _answer(self, request: Request) -> None:
        try:
            decision = self._policy.peer(self._peer)
            if not decision.allowed:
                raise Refused(decision.public)
            if isinstance(request, InventoryRequest):
                await self._visit(request)
            elif isinstance(request, DevlistRequest):
                await self._list()
            else:
                if isinstance(request, ImportRequest):
                    request = GrantRequest(device=request.busid)
                await self._grant(request)
        except LinkError:
            raise
        except UsbdraError as exc:
            await self._refuse(request, exc)

    async def _visit(self, request: InventoryRequest) -> None:
        """Answer now or when there is news; a peer that leaves meanwhile is not waited with."""
        if not request.wait:
            await self._list(await self._visited(self._peer, request))
            return
        end = LinkEnd(self._sock)
        visited = asyncio.ensure_future(self._visited(self._peer, request))
        try:
            await asyncio.wait((visited, end.ended), return_when=asyncio.FIRST_COMPLETED)
            self._left = not visited.done()
            if not self._left:
                await self._list(visited.result())
        finally:
            end.close()
            visited.cancel()
            await asyncio.gather(visited, return_exceptions=True)

    async def _list(self, more: Inventory | None = None) -> None:
        devices = await self._visible()
        try:
            reply = self._session.reply_devices(devices, more)
        except ValueError as exc:  # more devices or longer texts than a reply may hold
            raise UsbdraError(str(exc)) from exc
        _log.info("devices listed", extra={"peer": str(self._peer), "devices": len(devices)})
        await self._send(reply)

    async def _visible(self) -> Sequence[RemoteDevice]:
        devices = await self._broker.inventory(self._peer)
        return [one for one in devices if self._policy.offers(self._peer, one)]

    async def _grant(self, request: GrantRequest) -> None:
        facts = {"device": request.device, "peer": self._peer.node or ""}
        with self._tracer.entry("grant", Kind.SERVER, request.trace, **facts):
            await self._give(request)

    async def _give(self, request: GrantRequest) -> None:
        """Acquire, hand over, reply: the order of the stock server (usbipd.c
        recv_request_import), so that this kernel listens before the peer's kernel speaks."""
        granted: Granted | None = None
        try:
            async with asyncio.timeout(self._limits.serve):
                await self._permit(request)
                granted = await self._broker.acquire(request, self._peer, self._sock)
                started = time.monotonic()
                await self._broker.hand_over(granted, self._sock)
            timings = (*granted.timings, ("hand_over", time.monotonic() - started))
            await self._send(self._session.reply_granted(GrantReply(granted.device, timings)))
        except BaseException as exc:
            if granted is not None:
                # Shielded: a cancelled connection must not leave the device taken.
                await asyncio.shield(self._broker.abandon(granted))
            if isinstance(exc, TimeoutError):
                raise ExportFailed(
                    f"device {request.device} was not ready within {self._limits.serve:g} s"
                ) from exc
            raise
        self.granted = True
        _log.info("device granted", extra=self._facts(request))

    async def _permit(self, request: GrantRequest) -> None:
        """With rules per device, only what the peer can see under this very key is asked for."""
        if self._policy.devices and not any(
            request.device in (one.busid, one.name) for one in await self._visible()
        ):
            raise NotFound(f"no device {request.device} is offered here")

    async def _refuse(self, request: Request, error: UsbdraError) -> None:
        status, refusal = refusal_of(error)
        _log.warning(
            "request refused: %s", error, extra={**self._facts(request), "reason": refusal.reason}
        )
        await self._send(self._session.reply_refused(status, refusal))

    async def _send(self, data: bytes) -> None:
        if data:
            deadline = sockets.deadline_in(self._timeouts.request)
            await sockets.write_all(self._sock, data, deadline, "a reply")

    def _facts(self, request: Request) -> dict[str, str]:
        facts = {"peer": str(self._peer)}
        if isinstance(request, ImportRequest):
            facts["device"] = request.busid
        elif isinstance(request, GrantRequest):
            facts["device"] = request.device
            facts["holder"] = request.holder
            if request.claim is not None:
                facts["claim"] = str(request.claim)
        return facts
