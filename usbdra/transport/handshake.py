# SPDX-License-Identifier: Apache-2.0
"""The TLS 1.3 handshake over a TCP socket, one record at a time, then kernel TLS.

Owns the way from a connected socket to one the kernel encrypts. OpenSSL never sees the socket:
each record is read by its own length and handed over in memory, so not one byte beyond the
handshake is taken, even when the peer's first message came in the same segment. Must not send
or receive application data.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from usbdra.errors import EncryptionUnavailable, LinkError, NotAuthenticated, ProtocolError
from usbdra.transport import ktls, sockets
from usbdra.transport.keys import RANDOM_SIZE, KeyLog, suite_named
from usbdra.transport.ktls import KernelTls, Role
from usbdra.transport.tls import PeerCertificate, TlsContext, peer_certificate

if TYPE_CHECKING:
    import ssl

RECORD_HEADER_SIZE = 5
MAX_RECORD = (1 << 14) + 256
"""RFC 8446 5.2: the largest encrypted record."""
MAX_HANDSHAKE = 64 * 1024
"""Bytes of records one handshake may take; two certificate chains are some 4 KiB."""

_RECORD_TYPES = frozenset((20, 21, 22, 23))
_RECORD_HANDSHAKE = 22
_CLIENT_HELLO = 1
# Record header, handshake type and length, legacy version: the random follows (RFC 8446 4.1.2).
_RANDOM_AT = RECORD_HEADER_SIZE + 4 + 2
_ALERT_TIME = 0.5


@dataclass(frozen=True, slots=True)
class Secured:
    """Who the peer proved to be, and whether the kernel encrypts what follows."""

    certificate: PeerCertificate
    encrypted: bool


async def secure(
    sock: socket.socket,
    role: Role,
    context: TlsContext,
    *,
    deadline: float,
    kernel: KernelTls,
    expect: str | None = None,
    protocols: Sequence[str] = (ktls.ENCRYPTED,),
) -> Secured:
    """Authenticate the peer and switch the socket to kernel TLS. Borrows sock.

    `protocols` is what this end agrees to (ktls.protocols); the link goes on in clear when both
    ends settle for that.

    `expect` is the node, DNS name or address the certificate must be for; a server that serves
    by name of the peer passes None. A client is not trusted by the server yet when this returns
    to it: only the first reply under the new keys proves that.

    Raises NotAuthenticated, EncryptionUnavailable, PeerTimeout, PeerClosed, ProtocolError or
    LinkError; the socket is then of no further use.
    """
    handshake = _Handshake(sock, role, context, deadline, protocols)
    await handshake.run()
    peer = peer_certificate(handshake.tls.getpeercert())
    if expect is not None and not peer.names(expect):
        raise NotAuthenticated(_wrong_name(peer, expect))
    settled = handshake.tls.selected_alpn_protocol()
    if settled != ktls.ENCRYPTED or settled not in protocols:
        await handshake.flush()  # so that the peer is through as well and can say the same
        if settled not in protocols:
            raise EncryptionUnavailable(_no_agreement(peer, protocols))
        return Secured(peer, encrypted=False)
    suite = suite_named((handshake.tls.cipher() or ("no suite",))[0])
    secrets = handshake.log.secrets(handshake.client_random)
    await handshake.flush()
    ktls.install(sock, role, suite, secrets, kernel)
    return Secured(peer, encrypted=True)


def _no_agreement(peer: PeerCertificate, protocols: Sequence[str]) -> str:
    if ktls.CLEAR not in protocols:
        return (
            f"node {peer.node} agrees to no encrypted link, which this end requires: its kernel "
            "has no TLS (`modprobe tls` there), or it has encryption: Off"
        )
    return (
        f"node {peer.node} requires an encrypted link and this end has none: `modprobe tls` "
        "here, with encryption: Required or Allowed"
    )


def _wrong_name(peer: PeerCertificate, expect: str) -> str:
    known = ", ".join((peer.node, *peer.dns, *peer.addresses))
    return f"the peer's certificate is not for {expect} but for {known}"


class _Handshake:
    """One handshake: OpenSSL's state, its two memory buffers and the records between them."""

    def __init__(
        self,
        sock: socket.socket,
        role: Role,
        context: TlsContext,
        deadline: float,
        protocols: Sequence[str],
    ) -> None:
        import ssl

        self._sock = sock
        self._role = role
        self._context = context
        self._deadline = deadline
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._taken = 0
        self.client_random = b""
        self.log = KeyLog()
        context.ssl.set_alpn_protocols(list(protocols))
        self.tls = context.ssl.wrap_bio(
            self._incoming, self._outgoing, server_side=role is Role.SERVER
        )

    async def run(self) -> None:
        """Exchange records until OpenSSL is through; its last words are left to flush()."""
        import ssl

        try:
            while not self._step():
                await self.flush()
                self._incoming.write(await self._read_record())
        except ssl.SSLError as exc:
            # The alert tells the peer why; that it gets through is not promised.
            with contextlib.suppress(LinkError):
                self._deadline = min(self._deadline, sockets.deadline_in(_ALERT_TIME))
                await self.flush()
            raise _handshake_error(exc) from exc

    def _step(self) -> bool:
        """One call into OpenSSL and, before anything else can run, what it logged."""
        import ssl

        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            text = self._context.take_log()
            self.log.add(text)
            text[:] = bytes(len(text))
        return True

    async def flush(self) -> None:
        """Send what OpenSSL wants sent."""
        data = self._outgoing.read()
        if data and self._role is Role.CLIENT and not self.client_random:
            self.client_random = data[_RANDOM_AT : _RANDOM_AT + RANDOM_SIZE]
        if data:
            await sockets.write_all(self._sock, data, self._deadline, "the TLS handshake")

    async def _read_record(self) -> bytes:
        header = await self._read(RECORD_HEADER_SIZE)
        kind, major, length = header[0], header[1], int.from_bytes(header[3:5], "big")
        if kind not in _RECORD_TYPES or major != 3:
            raise ProtocolError(
                f"peer does not speak TLS (its first bytes are {header.hex(' ')}); "
                "is it a plain USB/IP peer?"
            )
        self._taken += RECORD_HEADER_SIZE + length
        if length > MAX_RECORD or self._taken > MAX_HANDSHAKE:
            raise ProtocolError(f"TLS handshake takes over {MAX_HANDSHAKE} bytes; given up")
        record = header + await self._read(length)
        if self._role is Role.SERVER and not self.client_random:
            self.client_random = _random_of_hello(record)
        return record

    async def _read(self, size: int) -> bytes:
        return await sockets.read_exactly(self._sock, size, self._deadline, "the TLS handshake")


def _random_of_hello(record: bytes) -> bytes:
    random = record[_RANDOM_AT : _RANDOM_AT + RANDOM_SIZE]
    kinds = (record[0], record[RECORD_HEADER_SIZE : RECORD_HEADER_SIZE + 1])
    if kinds != (_RECORD_HANDSHAKE, bytes((_CLIENT_HELLO,))) or len(random) != RANDOM_SIZE:
        raise ProtocolError("peer's first TLS record is no client hello")
    return random


def _handshake_error(exc: ssl.SSLError) -> LinkError:
    import ssl

    if isinstance(exc, ssl.SSLCertVerificationError):
        hint = (
            "; check the clocks of both machines" if "not yet valid" in exc.verify_message else ""
        )
        return NotAuthenticated(f"the peer's certificate: {exc.verify_message}{hint}")
    reason = (exc.reason or str(exc)).replace("_", " ").lower()
    if "certificate" in reason or "unknown ca" in reason:
        return NotAuthenticated(f"TLS handshake: {reason}")
    return ProtocolError(f"TLS handshake failed: {reason}")
