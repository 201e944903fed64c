# SPDX-License-Identifier: Apache-2.0
"""The exporter's end of the Unix socket: a Broker that asks the agent.

Owns one connection for each grant until it is handed over. Has no privilege and needs none: the
agent binds, writes sysfs and checks everything again. Must not touch devices.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from usbdra.errors import ExportFailed, LinkError, UsbdraError
from usbdra.exporter import messages
from usbdra.exporter.broker import Granted, GrantRequest, Peer
from usbdra.exporter.messages import REPLIES, Kind, Pems
from usbdra.exporter.refusals import RefusedByAgent
from usbdra.tracing.spans import Kind as Side
from usbdra.tracing.spans import spanned, traceparent
from usbdra.transport import packets, sockets
from usbdra.types import RemoteDevice

_log = logging.getLogger(__name__)

_T = TypeVar("_T")


class RemoteBroker:
    """See Broker. The agent listens at `path` as user `uid`; it has `seconds` for each answer."""

    def __init__(self, path: Path, uid: int, *, seconds: float = 24.0) -> None:
        self._path = path
        self._uid = uid
        self._seconds = seconds
        self._held: dict[str, socket.socket] = {}

    async def inventory(self, peer: Peer) -> Sequence[RemoteDevice]:
        """See Broker."""
        body = await self._once(Kind.INVENTORY, messages.pack_inventory(peer))
        return _checked(messages.parse_devices, body)

    async def identity(self, have: str) -> Pems:
        """This node's certificate and key; only the stamp when `have` is still the right one.

        Raises UsbdraError while the agent has none.
        """
        body = await self._once(Kind.IDENTITY, messages.pack_have(have))
        return _checked(messages.parse_pems, body)

    @spanned("acquire", Side.CLIENT)
    async def acquire(self, request: GrantRequest, peer: Peer, sock: socket.socket) -> Granted:
        """See Broker. The agent gets a copy of `sock`, and whatever was granted on this
        connection of ours ends with it until `hand_over` is done."""
        connection = await self._connect()
        try:
            traced = replace(request, trace=traceparent(request.trace))
            body = messages.pack_acquire(traced, peer)
            reply = await self._ask(connection, Kind.ACQUIRE, body, sock.fileno())
            granted = _checked(messages.parse_granted, reply)
        except BaseException:
            connection.close()
            raise
        self._held[granted.session] = connection
        return granted

    @spanned("hand-over", Side.CLIENT)
    async def hand_over(self, granted: Granted, sock: socket.socket) -> None:
        """See Broker; the agent has the socket since `acquire`."""
        connection = self._held.pop(granted.session, None)
        if connection is None:
            raise ExportFailed(f"session for {granted.device.busid} is over; ask again")
        with connection:
            body = messages.pack_session(granted.session, traceparent())
            await self._ask(connection, Kind.HAND_OVER, body)

    async def abandon(self, granted: Granted) -> None:
        """See Broker. An agent that does not answer ends the session with the connection."""
        connection = self._held.pop(granted.session, None)
        try:
            with connection or await self._connect() as one:
                await self._ask(one, Kind.ABANDON, messages.pack_session(granted.session))
        except UsbdraError as error:
            facts = {"device": granted.device.busid, "reason": error.reason}
            _log.warning("session left to the agent: %s", error, extra=facts)

    def close(self) -> None:
        """End every grant that was not handed over."""
        for connection in self._held.values():
            connection.close()
        self._held.clear()

    async def _once(self, kind: Kind, body: bytes) -> bytes:
        with await self._connect() as connection:
            return await self._ask(connection, kind, body)

    async def _connect(self) -> socket.socket:
        try:
            deadline = sockets.deadline_in(self._seconds)
            return await packets.connect(self._path, self._uid, deadline)
        except LinkError as error:
            raise _away(error) from error

    async def _ask(
        self, connection: socket.socket, kind: Kind, body: bytes, fd: int | None = None
    ) -> bytes:
        """The body of the agent's reply. Raises RefusedByAgent, ExportFailed."""
        deadline = sockets.deadline_in(self._seconds)
        try:
            await packets.send(connection, kind, body, deadline, fd)
            reply = await packets.receive(connection, messages.MAX_REPLY, deadline)
        except LinkError as error:
            raise _away(error) from error
        if reply is None:
            raise ExportFailed("this node's agent closed the connection; ask again")
        if reply.kind == Kind.REFUSED:
            raise RefusedByAgent(*_checked(messages.parse_refused, reply.body))
        if reply.kind != REPLIES[kind]:
            raise ExportFailed(f"this node's agent answered {kind.name} with kind {reply.kind}")
        return reply.body


def _checked(parse: Callable[[bytes], _T], body: bytes) -> _T:
    try:
        return parse(body)
    except LinkError as error:
        raise _away(error) from error


def _away(error: LinkError) -> ExportFailed:
    """A LinkError would be the peer's; this is trouble in our own house, and passes."""
    return ExportFailed(f"this node's agent does not answer ({error}); ask again")
