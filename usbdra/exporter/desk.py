# SPDX-License-Identifier: Apache-2.0
"""The agent's end of the Unix socket: does for the unprivileged exporter what a Broker does.

Owns the socket, its limits and the life of a grant that was not handed over yet: it ends with the
connection it was made on, so an exporter that is killed leaves nothing taken. The exporter faces
the network and is believed nothing: its messages are bounded and checked, its user is proved by
the kernel, its word for a peer is weighed by the broker's guard. Must not decide about devices,
and must not run on the agent's own loop (deskthread.py says why).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from usbdra.errors import (
    ExportFailed,
    LinkError,
    NotAuthenticated,
    ProtocolError,
    Refused,
    UsbdraError,
)
from usbdra.exporter import messages
from usbdra.exporter.broker import Broker, Granted
from usbdra.exporter.evidence import socket_of
from usbdra.exporter.messages import REPLIES, Kind, Pems
from usbdra.exporter.rate import Bucket
from usbdra.exporter.refusals import refusal_of
from usbdra.tracing.spans import OFF, Tracer
from usbdra.tracing.spans import Kind as Side
from usbdra.transport import packets, sockets
from usbdra.transport.closing import close_at_once
from usbdra.transport.packets import Packet
from usbdra.transport.sockets import LinkTimeouts

_log = logging.getLogger(__name__)

_MAX_SESSIONS = 1024


@dataclass(frozen=True, slots=True)
class DeskLimits:
    """What an exporter gone mad may cost the agent.

    `connections` at once, `requests` on each, `idle` seconds for each message, `serve` seconds
    for the work behind one, `per_second` requests of a kind in the long run after a `burst`.
    """

    connections: int = 160
    requests: int = 8
    idle: float = 5.0
    serve: float = 12.0
    per_second: float = 20.0
    burst: int = 200


class _TooMany(Refused):
    """The exporter asks faster than any number of peers would."""

    reason = "Busy"


class Desk:
    """Listens at `path` for processes of user `uid`.

    `pems` reads this node's certificate, its key and the CAs, for the exporter's handshakes;
    `timeouts` are put on each connection before the kernel gets it, whatever the exporter set.
    `tracer` goes on with traces that the exporter names; all it can do by that is name one.
    """

    def __init__(
        self,
        broker: Broker,
        path: Path,
        *,
        uid: int,
        pems: Callable[[], Pems],
        limits: DeskLimits | None = None,
        timeouts: LinkTimeouts | None = None,
        tracer: Tracer = OFF,
    ) -> None:
        self._tracer = tracer
        self._broker = broker
        self._path = path
        self._uid = uid
        self._pems = pems
        self._limits = limits or DeskLimits()
        self._timeouts = timeouts or LinkTimeouts()
        # What ends a grant is as rare as what made it. One of each: who lists all day takes nothing
        # from who wants a device.
        self._buckets = {
            kind: Bucket(self._limits.per_second, self._limits.burst)
            for kind in (Kind.INVENTORY, Kind.ACQUIRE, Kind.IDENTITY)
        }
        self._sessions: OrderedDict[str, Granted] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._endings: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None
        self._acceptor: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen. Raises OSError naming the path."""
        self._listener = packets.listen(self._path, self._uid, self._limits.connections)
        self._acceptor = asyncio.create_task(self._accept(self._listener))

    async def close(self) -> None:
        """Stop listening and give back what was not handed over; running links go on."""
        tasks = [*self._tasks, *([self._acceptor] if self._acceptor else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*self._endings, return_exceptions=True)
        if self._listener is not None:
            self._listener.close()
            self._path.unlink(missing_ok=True)

    async def __aenter__(self) -> Desk:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(listener)
            except OSError as exc:
                _log.error("cannot accept the exporter: %s", exc.strerror)
                await asyncio.sleep(1.0)  # no descriptor left; there is no event for "one again"
                continue
            if len(self._tasks) >= self._limits.connections or not self._is_exporter(sock):
                sock.close()
                await asyncio.sleep(0)
                continue
            task = asyncio.create_task(self._serve(sock))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda _, sock=sock: sock.close())  # type: ignore[misc]

    def _is_exporter(self, sock: socket.socket) -> bool:
        try:
            packets.require_user(sock, self._uid)
        except (NotAuthenticated, OSError) as exc:
            _log.warning("connection to %s refused: %s", self._path, exc, extra={"once": str(exc)})
            return False
        return True

    async def _serve(self, sock: socket.socket) -> None:
        visit = _Visit()
        try:
            for _ in range(self._limits.requests):
                deadline = sockets.deadline_in(self._limits.idle)
                packet = await packets.receive(sock, messages.MAX_REQUEST, deadline, with_fd=True)
                if packet is None:
                    return
                await self._answer(sock, packet, visit)
        except LinkError as exc:
            _log.warning("exporter: %s", str(exc), extra={"reason": exc.reason})
        finally:
            self._drop(visit)
            if visit.granted is not None:
                # A task of its own: a stop of the agent must not leave the device taken.
                ending = asyncio.create_task(self._broker.abandon(visit.granted))
                self._endings.add(ending)
                ending.add_done_callback(self._endings.discard)

    async def _answer(self, sock: socket.socket, packet: Packet, visit: _Visit) -> None:
        try:
            kind = _kind_of(packet)
            try:
                reply, body = REPLIES[kind], await self._try(kind, packet, visit)
            except LinkError:
                raise
            except UsbdraError as error:
                reply, body = Kind.REFUSED, messages.pack_refused(*refusal_of(error))
        finally:
            if visit.taken is not packet:
                packet.close()
        await packets.send(sock, reply, body, sockets.deadline_in(self._limits.idle))

    async def _try(self, kind: Kind, packet: Packet, visit: _Visit) -> bytes:
        """The body of the reply. Raises UsbdraError, whatever else went wrong on the way."""
        bucket = self._buckets.get(kind)
        if bucket is not None and not bucket.take(asyncio.get_running_loop().time()):
            raise _TooMany("this node is asked too often; try again")
        try:
            async with asyncio.timeout(self._limits.serve):
                return await self._do(kind, packet, visit)
        except UsbdraError:
            raise
        except TimeoutError as exc:
            raise ExportFailed(f"not done within {self._limits.serve:g} s") from exc
        except Exception as exc:
            _log.exception("exporter's request failed by a fault of ours")
            raise UsbdraError("a fault of the agent; its log says more") from exc

    async def _do(self, kind: Kind, packet: Packet, visit: _Visit) -> bytes:
        body = packet.body
        if kind is Kind.INVENTORY:
            return await self._inventory(body)
        if kind is Kind.ACQUIRE:
            return messages.pack_granted(await self._acquire(packet, visit))
        if kind is Kind.IDENTITY:
            have, pems = messages.parse_have(body), self._pems()
            return messages.pack_pems(Pems(have) if pems.stamp == have else pems)
        if kind is Kind.HAND_OVER:
            session, trace = messages.parse_hand_over(body)
            with self._tracer.entry("hand-over", Side.SERVER, trace or visit.trace):
                await self._hand_over(session, visit)
        else:
            await self._abandon(messages.parse_session(body), visit)
        return messages.pack_done()

    @staticmethod
    def _drop(visit: _Visit) -> None:
        """Close our copy of a visit's socket; where it was handed over the kernel has its own."""
        if visit.sock is not None:
            close_at_once(visit.sock)
            visit.sock = None

    async def _inventory(self, body: bytes) -> bytes:
        devices = await self._broker.inventory(messages.parse_peer(body))
        try:
            return messages.pack_devices(devices)
        except ValueError as exc:  # more devices or longer texts than a reply may hold
            raise UsbdraError(str(exc)) from exc

    async def _acquire(self, packet: Packet, visit: _Visit) -> Granted:
        if visit.granted is not None:
            raise Refused("a connection has one device; this one has it")
        request, peer = messages.parse_acquire(packet.body)
        self._drop(visit)
        sock, visit.trace = visit.take(packet), request.trace
        with contextlib.suppress(OSError):  # no TCP: the guard says so
            sockets.tune(sock, self._timeouts)
        with self._tracer.entry("acquire", Side.SERVER, request.trace, device=request.device):
            visit.granted = await self._broker.acquire(request, peer, sock)
        self._sessions[visit.granted.session] = visit.granted
        if len(self._sessions) > _MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return visit.granted

    async def _hand_over(self, session: str, visit: _Visit) -> None:
        granted, sock = visit.granted, visit.sock
        if granted is None or granted.session != session or sock is None:
            raise ExportFailed("no such session was granted on this connection")
        await self._broker.hand_over(granted, sock)
        visit.granted = None

    async def _abandon(self, session: str, visit: _Visit) -> None:
        """Any session that this exporter was granted; one that is unknown by now is over."""
        granted = self._sessions.pop(session, None)
        if granted is not None:
            await self._broker.abandon(granted)
        if visit.granted is not None and visit.granted.session == session:
            visit.granted = None


class _Visit:
    """One connection's grant, until it is handed over, and the TCP socket it is for."""

    def __init__(self) -> None:
        self.granted: Granted | None = None
        self.sock: socket.socket | None = None
        self.taken: Packet | None = None
        self.trace = ""
        """What the request named, for an exporter that passes it on and traces nothing itself."""

    def take(self, packet: Packet) -> socket.socket:
        """Own the packet's descriptor."""
        assert packet.fd is not None
        self.taken = packet
        self.sock = socket_of(packet.fd)
        return self.sock


def _kind_of(packet: Packet) -> Kind:
    """The request's kind. Raises ProtocolError for what no exporter of ours says."""
    try:
        kind = Kind(packet.kind)
    except ValueError as exc:
        raise ProtocolError(f"a message has the unknown kind {packet.kind}") from exc
    if kind not in REPLIES or (packet.fd is not None) is not (kind is Kind.ACQUIRE):
        raise ProtocolError(f"a message of kind {kind.name} is out of place, or its descriptor")
    return kind
