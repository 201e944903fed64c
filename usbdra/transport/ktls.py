# SPDX-License-Identifier: Apache-2.0
"""Hands a finished handshake to the kernel's TLS.

Owns the order of the steps and what a kernel without TLS means. The system calls are behind
KernelTls, so that tests can put a record layer of their own there. Must not read or write the
stream.
"""

from __future__ import annotations

import errno
import socket
from enum import Enum
from typing import Protocol

from usbdra.errors import EncryptionUnavailable, LinkError
from usbdra.transport.keys import Suite, TrafficSecrets, traffic_keys

TX = 1
RX = 2

_REMEDY = (
    "load it with `modprobe tls` (CONFIG_TLS), or let links go in clear with encryption: Allowed"
)


_ENDED = frozenset({errno.ENOTCONN, errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE})
"""What setsockopt says of a connection that the peer has ended: no word about TLS."""


class Role(Enum):
    """Which end of the handshake this is."""

    CLIENT = "client"
    SERVER = "server"


class Encryption(Enum):
    """Whether this end has the data of its links encrypted; both ends prove their name anyway."""

    REQUIRED = "Required"
    """Nothing else: without kernel TLS there is no link."""
    ALLOWED = "Allowed"
    """Where both kernels can; else in clear."""
    OFF = "Off"
    """Never."""


ENCRYPTED = "usbdra/1"
"""The ALPN word (RFC 7301) for a link that goes on in kernel TLS."""
CLEAR = "usbdra-clear/1"
"""The ALPN word for a link that goes on in clear after the handshake."""


class KernelTls(Protocol):
    """The two system calls (usbdra._native.ktls)."""

    def attach_ulp(self, sock: int, /) -> None:
        """setsockopt(TCP_ULP, "tls"). Borrows sock."""

    def set_keys(
        self, sock: int, direction: int, cipher: int, key: bytes, iv: bytes, rec_seq: int = 0, /
    ) -> None:
        """setsockopt(SOL_TLS, direction). Borrows sock."""


def native() -> KernelTls:
    """The kernel of this machine."""
    from usbdra._native import ktls

    return ktls


def protocols(encryption: Encryption, kernel: KernelTls) -> tuple[str, ...]:
    """What this end agrees to, best first, before any peer is bothered.

    The peers settle it inside the handshake, whose transcript both ends verify: nobody between
    them can talk them out of encryption. Raises EncryptionUnavailable when it is required and the
    kernel has none.
    """
    if encryption is Encryption.OFF:
        return (CLEAR,)
    try:
        require(kernel)
    except EncryptionUnavailable:
        if encryption is Encryption.REQUIRED:
            raise
        return (CLEAR,)
    return (ENCRYPTED,) if encryption is Encryption.REQUIRED else (ENCRYPTED, CLEAR)


def require(kernel: KernelTls) -> None:
    """Raise EncryptionUnavailable when the kernel has no TLS.

    The kernel looks the protocol up, loading the module if it may, before it looks at the
    socket's state (net/ipv4/tcp_ulp.c), so an unconnected socket tells without a peer.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
        try:
            kernel.attach_ulp(probe.fileno())
        except OSError as exc:
            if exc.errno != errno.ENOTCONN:
                raise _unavailable(exc) from exc


def install(
    sock: socket.socket, role: Role, suite: Suite, secrets: TrafficSecrets, kernel: KernelTls
) -> None:
    """Give both directions' keys to the kernel; from here on the socket carries plain bytes.

    Right only while no record was sent or received under these secrets: the sequence numbers
    start at 0. Raises EncryptionUnavailable, LinkError (the peer has ended the connection).
    """
    ours, theirs = secrets.server, secrets.client
    if role is Role.CLIENT:
        ours, theirs = theirs, ours
    try:
        kernel.attach_ulp(sock.fileno())
        for direction, secret in ((TX, ours), (RX, theirs)):
            keys = traffic_keys(secret, suite)
            kernel.set_keys(sock.fileno(), direction, keys.cipher, keys.key, keys.iv)
    except OSError as exc:
        if exc.errno in _ENDED:
            raise LinkError(
                "the peer ended the connection when the handshake was nearly done "
                f"({exc.strerror or exc}); its log says why: it waits a few seconds for each step"
            ) from exc
        raise _unavailable(exc) from exc


def _unavailable(exc: OSError) -> EncryptionUnavailable:
    if exc.errno == errno.ENOENT:
        return EncryptionUnavailable(f"the kernel has no TLS; {_REMEDY}")
    return EncryptionUnavailable(
        f"the kernel did not take the TLS link ({exc.strerror or exc}); {_REMEDY}"
    )
