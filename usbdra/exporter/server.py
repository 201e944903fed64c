# SPDX-License-Identifier: Apache-2.0
"""The exporter's listener: accepts peers within limits, one task each.

Owns listening sockets, the number of connections and their end. What is said on a connection is
conversation.py's; devices are the Broker's. Plain links only without an identity, which the
caller has to choose on purpose (`plain=True`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import secrets
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from usbdra.errors import ConfigError, LinkError, UsbdraError
from usbdra.exporter.broker import Broker, Peer
from usbdra.exporter.conversation import Conversation, Visited
from usbdra.exporter.policy import AccessPolicy
from usbdra.tracing.spans import OFF, Tracer
from usbdra.transport import handshake, ktls, sockets
from usbdra.transport.ktls import Encryption, KernelTls, Role
from usbdra.transport.sockets import LinkTimeouts
from usbdra.transport.tls import Contexts

_log = logging.getLogger(__name__)

_OUT_OF_FDS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Bounds on what strangers can make us hold.

    A connection over one of the two numbers takes the place of one that has proved nothing yet,
    chosen by chance: who floods us displaces himself, and a node that means it gets through.
    Where all have, the newcomer is closed. The numbers count only connections still talking to
    us: a device in use has its socket in the kernel. `requests` is how many a
    connection may make before its last; `serve` bounds authorising, binding and handing over.
    """

    connections: int = 128
    per_address: int = 32
    requests: int = 8
    serve: float = 12.0
    backlog: int = 256


@dataclass(frozen=True, slots=True)
class Listen:
    """Where to listen. `reuse_port` lets an old and a new process overlap during an upgrade."""

    addresses: Sequence[str] = ("0.0.0.0", "::")  # noqa: S104 a server's default
    port: int = 3241
    reuse_port: bool = False


@dataclass(slots=True)
class ServerStats:
    """Counts since the start."""

    accepted: int = 0
    over_limit: int = 0
    refused_networks: int = 0
    failed: int = 0
    granted: int = 0


@dataclass(eq=False, slots=True)
class _Guest:
    """A connection that is being served. `proven` once its peer has shown a certificate, or on
    a plain link asked for something."""

    host: str
    proven: bool = False

    def prove(self) -> None:
        """The peer is no mere opener of connections."""
        self.proven = True


@dataclass(eq=False, slots=True)
class _Open:
    """Connections that are being served, by task."""

    guests: dict[asyncio.Task[None], _Guest] = field(default_factory=dict)
    freed: asyncio.Event = field(default_factory=asyncio.Event)

    def counts(self) -> Counter[str]:
        """How many each address has."""
        return Counter(guest.host for guest in self.guests.values())

    def unproven(self, host: str | None) -> list[asyncio.Task[None]]:
        """Those of an address that have proved nothing; of the fullest one for None."""
        found = [(t, g.host) for t, g in self.guests.items() if not g.proven]
        if host is None and found:
            host = Counter(of for _, of in found).most_common(1)[0][0]
        return [task for task, of in found if of == host]

    def left(self, task: asyncio.Task[None]) -> None:
        """The connection is over, or was told to be."""
        self.guests.pop(task, None)
        self.freed.set()


class ExporterServer:
    """Serves a Broker's devices over TCP.

    `refresh` is awaited before each handshake, for an identity that is kept current by somebody
    else. `visited` hears of a cluster's controller. `kernel` is for tests; None stands for this
    machine's kernel.
    """

    def __init__(
        self,
        broker: Broker,
        listen: Listen,
        *,
        identity: Contexts | None,
        plain: bool = False,
        encryption: Encryption = Encryption.REQUIRED,
        refresh: Callable[[], Awaitable[None]] | None = None,
        policy: AccessPolicy | None = None,
        limits: ServerLimits | None = None,
        timeouts: LinkTimeouts | None = None,
        kernel: KernelTls | None = None,
        visited: Visited | None = None,
        tracer: Tracer = OFF,
    ) -> None:
        """Raises ConfigError unless exactly one of identity and plain is given."""
        if (identity is None) is not plain:
            raise ConfigError("the exporter needs a certificate, or plain mode on purpose")
        self._broker = broker
        self._tracer = tracer
        self._listen = listen
        self._identity = identity
        self._visited = visited
        self._encryption = encryption
        self._refresh = refresh
        self._policy = policy or AccessPolicy()
        self._limits = limits or ServerLimits()
        self._timeouts = timeouts or LinkTimeouts()
        self._kernel = kernel
        self._listeners: list[socket.socket] = []
        self._acceptors: list[asyncio.Task[None]] = []
        self._open = _Open()
        self.stats = ServerStats()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """(address, port) of each listening socket."""
        return [listener.getsockname()[:2] for listener in self._listeners]

    @property
    def open_connections(self) -> int:
        """Connections still talking to us; links of devices in use are the kernel's."""
        return len(self._open.guests)

    @property
    def encryption_off(self) -> bool:
        """Whether no link of ours is encrypted, by setting or for want of kernel TLS."""
        if self._identity is None or self._kernel is None:
            return True
        return ktls.ENCRYPTED not in ktls.protocols(self._encryption, self._kernel)

    async def start(self) -> None:
        """Listen. Raises EncryptionUnavailable where it is required and the kernel has none,
        ConfigError for an address that cannot be used; then nothing listens."""
        if self._identity is not None:
            self._kernel = self._kernel or ktls.native()
            ktls.protocols(self._encryption, self._kernel)
        port = self._listen.port
        try:
            for address in self._listen.addresses:
                self._listeners.append(_listener(address, port, self._listen, self._limits.backlog))
                # Port 0: what the system chose for the first address serves the others too.
                port = self._listeners[0].getsockname()[1]
        except BaseException:
            self._close_listeners()
            raise
        self._acceptors = [asyncio.create_task(self._accept(one)) for one in self._listeners]

    async def close(self) -> None:
        """Stop listening and end the connections still talking; running links go on."""
        tasks = [*self._acceptors, *self._open.guests]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._acceptors.clear()
        self._close_listeners()

    async def __aenter__(self) -> ExporterServer:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(listener)
            except OSError as exc:
                await self._accept_failed(exc)
                continue
            self.stats.accepted += 1
            if self._admit(address):
                guest = _Guest(address[0])
                task = asyncio.create_task(self._serve(sock, address, guest))
                self._open.guests[task] = guest
                task.add_done_callback(self._open.left)
                # One that is displaced before its first step never gets to close its socket.
                task.add_done_callback(functools.partial(_close, sock))
            else:
                sock.close()
            # Nothing above waits while the queue is full of strangers: those who are served, and
            # those who were displaced and still have to close, get their turn.
            await asyncio.sleep(0)

    async def _accept_failed(self, exc: OSError) -> None:
        """A peer that hung up in the queue is nothing; without fds wait for one to be freed."""
        if exc.errno not in _OUT_OF_FDS:
            return
        _log.error("cannot accept a connection: %s", exc.strerror)
        self._open.freed.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._open.freed.wait(), 1.0)

    def _admit(self, address: tuple[Any, ...]) -> bool:
        decision = self._policy.connection(address[0])
        if not decision.allowed:
            self.stats.refused_networks += 1
            _log.warning("connection refused: %s", decision.detail, extra={"once": address[0]})
            return False
        return self._make_room(address[0])

    def _make_room(self, host: str) -> bool:
        """Whether the newcomer has a place, if need be that of one who has proved nothing."""
        total, own = len(self._open.guests), self._open.counts()[host]
        full_here = own >= self._limits.per_address
        if not full_here and total < self._limits.connections:
            return True
        self.stats.over_limit += 1
        _log.warning(
            "too many connections: %d open, %d of them from %s",
            total,
            own,
            host,
            extra={"once": f"limit {host}"},
        )
        candidates = self._open.unproven(host if full_here else None)
        if not candidates:
            return False
        displaced = secrets.choice(candidates)
        displaced.cancel()
        self._open.left(displaced)
        return True

    async def _serve(self, sock: socket.socket, address: tuple[Any, ...], guest: _Guest) -> None:
        """One connection from accept to close; whatever happens on it stays on it."""
        peer = Peer(address[0], address[1])
        try:
            with sock:
                sockets.tune(sock, self._timeouts)
                peer = await self._authenticate(sock, peer)
                guest.proven = peer.authenticated
                conversation = Conversation(
                    sock,
                    peer,
                    self._broker,
                    self._policy,
                    self._limits,
                    self._timeouts,
                    self._visited,
                    self._tracer,
                )
                await conversation.run(heard=guest.prove)
                self.stats.granted += conversation.granted
        except LinkError as exc:
            self.stats.failed += 1
            # The text alone: a record that is kept must not keep the connection's frames.
            _log.warning("connection failed: %s", str(exc), extra=_facts(peer, exc))
        except OSError as exc:
            self.stats.failed += 1
            _log.warning("connection failed: %s", str(exc), extra={"peer": str(peer)})
        except Exception:
            self.stats.failed += 1
            _log.exception("connection failed by a fault of ours", extra={"peer": str(peer)})

    async def _authenticate(self, sock: socket.socket, peer: Peer) -> Peer:
        if self._identity is None or self._kernel is None:
            return peer
        if self._refresh is not None:
            await self._refresh()
        secured = await handshake.secure(
            sock,
            Role.SERVER,
            self._identity.context(Role.SERVER),
            deadline=sockets.deadline_in(self._timeouts.handshake),
            kernel=self._kernel,
            protocols=ktls.protocols(self._encryption, self._kernel),
        )
        return Peer(
            peer.address,
            peer.port,
            secured.certificate.node,
            secured.encrypted,
            secured.certificate.node_uid,
            secured.certificate.uris,
        )


def _close(sock: socket.socket, _: object) -> None:
    sock.close()


def _facts(peer: Peer, exc: UsbdraError) -> dict[str, str]:
    return {"peer": str(peer), "reason": exc.reason}


def _listener(address: str, port: int, listen: Listen, backlog: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError as exc:
        raise ConfigError(f"cannot listen on {address}: {exc.strerror}") from exc
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if listen.reuse_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family is socket.AF_INET6:
            # IPv4 has a socket of its own: peers keep their true addresses.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(socket.getaddrinfo(address, port, family, flags=socket.AI_NUMERICHOST)[0][4])
        sock.listen(backlog)
    except OSError as exc:
        sock.close()
        raise ConfigError(f"cannot listen on {address} port {port}: {exc.strerror}") from exc
    return sock
