# SPDX-License-Identifier: Apache-2.0
"""What the kernel counts of links whose sockets we do not hold: TCP_INFO by socket diagnosis.

Owns the request and the reading of the answer. The kernel's filter picks the connections to one
port, so that a busy node's others cost nothing here. Must not decide what is worth telling.
"""

from __future__ import annotations

import errno
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from usbdra.errors import KernelUnsupported
from usbdra.transport.watch import parse
from usbdra.types import Endpoints

# include/uapi/linux/netlink.h, sock_diag.h, inet_diag.h, tcp.h; net/tcp_states.h
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_REQUEST_DUMP = 0x001 | 0x300
_ESTABLISHED = 1 << 1
_INFO, _ULP = 2, 19  # INET_DIAG_INFO, INET_DIAG_ULP_INFO
_ULP_TLS = 2  # INET_ULP_INFO_TLS
_TLS_TX, _TLS_RX = 3, 4  # include/uapi/linux/tls.h TLS_INFO_TXCONF, TLS_INFO_RXCONF
_TLS_BASE = 1  # TLS_CONF_BASE; software and hardware are above it
_TYPE_MASK = 0x3FFF  # NLA_TYPE_MASK
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI")  # struct inet_diag_req_v2 up to the socket's id
_ID = struct.Struct("!HH44x")  # struct inet_diag_sockid: ports, the rest open
_MESSAGE = 72  # sizeof(struct inet_diag_msg)
_ATTRIBUTE = struct.Struct("=HH")
_RTT, _RETRANSMITS, _ACKED = 68, 100, 120  # offsets in struct tcp_info; received follows acked
_INFO_BYTES = 136

_ANSWER_BYTES = 1 << 16
MAX_ANSWERS = 4096
"""Datagrams of one dump; some hundred connections are in each."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Of one link, from its beginning: bytes as TCP carries them, encryption included."""

    rtt: int
    """Smoothed round trip, microseconds."""
    sent: int
    """Bytes that the peer acknowledged."""
    received: int
    retransmits: int
    """Segments sent again."""
    encrypted: bool = False
    """The kernel encrypts what is sent and decrypts what comes (its own word: the ULP's)."""


def links_to(port: int, *, served: bool = False) -> dict[Endpoints, Counters]:
    """Every established connection from this network namespace to TCP port `port`.

    `served`: from this port instead, as an exporter has them. Raises KernelUnsupported where the
    kernel does not tell.
    """
    found: dict[Endpoints, Counters] = {}
    try:
        for family in (socket.AF_INET, socket.AF_INET6):
            kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
            with socket.socket(socket.AF_NETLINK, kind, _NETLINK_SOCK_DIAG) as sock:
                sock.bind((0, 0))
                sock.settimeout(5.0)
                sock.send(request(family, port, served=served))
                found.update(answers(lambda: sock.recv(_ANSWER_BYTES)))
    except OSError as error:
        raise KernelUnsupported(
            f"the kernel does not tell of connections ({error.strerror or error}): load tcp_diag"
        ) from error
    return found


def request(family: int, port: int, *, served: bool = False) -> bytes:
    """The dump of a family's established TCP connections to a port, with their TCP_INFO.

    What lies above TCP comes unasked to whoever has CAP_NET_ADMIN (net/ipv4/tcp_diag.c).
    """
    extensions = 1 << (_INFO - 1)
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, extensions, _ESTABLISHED) + (
        _ID.pack(port, 0) if served else _ID.pack(0, port)
    )
    size = _HEADER.size + len(body)
    return _HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0) + body


def answers(receive: Callable[[], bytes]) -> Iterator[tuple[Endpoints, Counters]]:
    """Read a dump to its end. Raises OSError for the kernel's own error."""
    for _ in range(MAX_ANSWERS):
        data = receive()
        if not data:
            return
        for kind, message in _messages(data):
            if kind == _NLMSG_DONE:
                return
            if kind == _NLMSG_ERROR:
                raise OSError(_code(message), "socket diagnosis")
            ends, info = parse(message), _info(message)
            if ends is not None and info is not None:
                yield ends, info


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(type, whole message) of one datagram."""
    at = 0
    while at + _HEADER.size <= len(data):
        size, kind, *_ = _HEADER.unpack_from(data, at)
        if size < _HEADER.size or at + size > len(data):
            return
        yield kind, data[at : at + size]
        at += -(-size // 4) * 4


def _code(message: bytes) -> int:
    """The errno of an error's message."""
    if len(message) < _HEADER.size + 4:
        return errno.EBADMSG
    return -int(struct.unpack_from("=i", message, _HEADER.size)[0])


def _info(message: bytes) -> Counters | None:
    """TCP_INFO of one message; None where it is missing, or of a kernel that counts less."""
    found = dict(_attributes(message[_HEADER.size + _MESSAGE :]))
    body = found.get(_INFO, b"")
    if len(body) < _INFO_BYTES:
        return None
    (rtt,) = struct.unpack_from("=I", body, _RTT)
    (again,) = struct.unpack_from("=I", body, _RETRANSMITS)
    sent, received = struct.unpack_from("=QQ", body, _ACKED)
    return Counters(rtt, sent, received, again, _encrypted(found.get(_ULP, b"")))


def _encrypted(ulp: bytes) -> bool:
    """Both directions have a cipher: a TLS socket begins with none (TLS_BASE)."""
    tls = dict(_attributes(dict(_attributes(ulp)).get(_ULP_TLS, b"")))
    ways = [tls.get(way, b"") for way in (_TLS_TX, _TLS_RX)]
    return all(len(way) == 2 and int.from_bytes(way, sys.byteorder) > _TLS_BASE for way in ways)


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(type, body) of netlink attributes, as far as they are whole."""
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        size, kind = _ATTRIBUTE.unpack_from(data, at)
        if size < _ATTRIBUTE.size or at + size > len(data):
            return
        yield kind & _TYPE_MASK, data[at + _ATTRIBUTE.size : at + size]
        at += -(-size // 4) * 4
