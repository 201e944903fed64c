# SPDX-License-Identifier: Apache-2.0
"""Knowing that a link ended without holding its socket: the kernel tells when one is destroyed.

Owns the netlink socket of sock_diag's destroy groups and the fan-out to listeners. Links are known
by their addresses, so those that an earlier process made count too. Must not decide whose a link
is, and keeps no list of links. Nothing here polls: the source's descriptor wakes the event loop.

The kernel sends a message when the last reference to a TCP socket goes (net/core/sock.c
`__sk_free`, net/core/sock_diag.c `sock_diag_broadcast_destroy`); while a copy is open somewhere
(`ending.LinkEnd`) none comes.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import struct
from array import array
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Protocol

from usbdra.errors import KernelUnsupported
from usbdra.types import Endpoints

_log = logging.getLogger(__name__)

# include/uapi/linux/netlink.h, sock_diag.h, inet_diag.h; asm-generic/socket.h
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLMSG_ERROR = 2
_REQUEST_DUMP = 0x001 | 0x300
_DESTROY_GROUPS = 1 << 0 | 1 << 2  # SKNLGRP_INET_TCP_DESTROY, SKNLGRP_INET6_TCP_DESTROY
_SO_ATTACH_FILTER = 26

_HEADER = struct.Struct("=IHHII")
_BODY = struct.Struct("!BBBBHH16s16s")  # struct inet_diag_msg up to the addresses
_DUMP_NOTHING = struct.Struct("=BBBxI48x")  # struct inet_diag_req_v2

_MESSAGE_BYTES = 4096
MAX_DRAIN = 512
"""Messages taken in one go, so that a storm cannot hold the event loop."""

Told = Callable[[Endpoints | None], None]
"""Called with the ends of a link that is over; with None after some were lost: look at all."""


class EndSource(Protocol):
    """Where the news comes from. `fileno()` is readable while `drain()` has something."""

    def fileno(self) -> int:
        """The descriptor to wait on; the source keeps it."""

    def drain(self) -> list[Endpoints | None]:
        """What is there now, in order, without blocking; None in place of what was lost."""

    def close(self) -> None:
        """Close the descriptor. Idempotent."""


class NetlinkEnds:
    """The kernel's own messages for connections from or to TCP port `port`.

    The filter runs in the kernel: a node with thousands of other connections does not wake us.
    Raises KernelUnsupported where the kernel has no TCP diagnosis to send them.
    """

    def __init__(self, port: int) -> None:
        require_diag()
        self._socket = _open(_DESTROY_GROUPS)
        try:
            _attach(self._socket, _either_port(port))
        except BaseException:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """The netlink socket."""
        return self._socket.fileno()

    def drain(self) -> list[Endpoints | None]:
        """As the Protocol says; at most `MAX_DRAIN` messages."""
        found: list[Endpoints | None] = []
        for _ in range(MAX_DRAIN):
            try:
                message = self._socket.recv(_MESSAGE_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                found.append(None)
                continue
            ends = parse(message)
            if ends is not None:
                found.append(ends)
        return found

    def close(self) -> None:
        """As the Protocol says."""
        self._socket.close()


class LinkWatch:
    """Tells every listener of every end. `run()` is the one task; all else is on its loop.

    `open_source` raises KernelUnsupported where the kernel sends no such messages; listeners are
    then asked to look at all of their links each `retry` seconds, and it is tried again.
    """

    def __init__(self, open_source: Callable[[], EndSource], *, retry: float = 30.0) -> None:
        self._open_source = open_source
        self._retry = retry
        self._listeners: list[Told] = []

    def listen(self, told: Told) -> None:
        """Tell this one too, from now on. It is called on the loop and must not block or raise."""
        self._listeners.append(told)

    async def run(self) -> None:
        """Tell until cancelled. The first news is None: what ended before it began is not told."""
        while True:
            try:
                await self._follow(self._open_source())
            except (KernelUnsupported, OSError) as error:
                text = "%s; links are looked at every %g s instead"
                _log.warning(text, error, self._retry, extra={"once": "ends of links"})
                self._tell(None)
            await asyncio.sleep(self._retry)

    async def _follow(self, source: EndSource) -> None:
        """Ends with the source's OSError."""
        loop = asyncio.get_running_loop()
        broken: asyncio.Future[None] = loop.create_future()

        def readable() -> None:
            try:
                found = source.drain()
            except OSError as error:
                if not broken.done():
                    broken.set_exception(error)
                return
            for ends in found:
                self._tell(ends)

        try:
            loop.add_reader(source.fileno(), readable)
            self._tell(None)
            await broken
        finally:
            loop.remove_reader(source.fileno())
            source.close()

    def _tell(self, ends: Endpoints | None) -> None:
        for told in self._listeners:
            told(ends)


def endpoints_of(sock: socket.socket) -> Endpoints:
    """Both ends of a connected TCP socket, as the kernel will name them. Raises OSError."""
    local, peer = sock.getsockname(), sock.getpeername()
    return Endpoints(_address(local[0]), local[1], _address(peer[0]), peer[1])


def parse(message: bytes) -> Endpoints | None:
    """The ends of the link in one message of a destroy group; None when it is about none."""
    if len(message) < _HEADER.size + _BODY.size:
        return None
    _length, kind, *_ = _HEADER.unpack_from(message)
    if kind != _SOCK_DIAG_BY_FAMILY:
        return None
    family, *_, sport, dport, source, destination = _BODY.unpack_from(message, _HEADER.size)
    if family not in (socket.AF_INET, socket.AF_INET6) or not dport:
        return None  # without a peer it was a listener
    size = 4 if family == socket.AF_INET else 16
    local, peer = (_address(ip_address(raw[:size])) for raw in (source, destination))
    return Endpoints(local, sport, peer, dport)


def require_diag() -> None:
    """Ask for a dump of no socket at all, upon which the kernel loads what it needs for it.

    Raises KernelUnsupported. Without tcp_diag a subscription to the groups succeeds all the same,
    and nothing ever comes (net/core/sock_diag.c `sock_diag_bind`).
    """
    request = _DUMP_NOTHING.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0)
    header = _HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0)
    try:
        with _open(0) as sock:
            sock.send(header + request)  # the kernel answers before this returns
            answer = sock.recv(_MESSAGE_BYTES)
    except OSError as error:
        raise KernelUnsupported(f"the kernel does not tell when links end: {error}") from error
    _length, kind, *_ = _HEADER.unpack_from(answer)
    code = -struct.unpack_from("=i", answer, _HEADER.size)[0] if kind == _NLMSG_ERROR else 0
    if code:
        raise KernelUnsupported(
            f"the kernel does not tell when links end ({os.strerror(code)}): load tcp_diag"
        )


def _open(groups: int) -> socket.socket:
    kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK
    sock = socket.socket(socket.AF_NETLINK, kind, _NETLINK_SOCK_DIAG)
    try:
        sock.bind((0, groups))
    except BaseException:
        sock.close()
        raise
    return sock


def _either_port(port: int) -> bytes:
    """Classic BPF: keep a message whose source or destination port is this one."""
    load_half, equal, result = 0x28, 0x15, 0x06  # BPF_LD|H|ABS, BPF_JMP|JEQ|K, BPF_RET|K
    sport = _HEADER.size + 4
    return b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (load_half, 0, 0, sport),
            (equal, 2, 0, port),
            (load_half, 0, 0, sport + 2),
            (equal, 0, 1, port),
            (result, 0, 0, _MESSAGE_BYTES),
            (result, 0, 0, 0),
        )
    )


def _attach(sock: socket.socket, program: bytes) -> None:
    code = array("B", program)  # the kernel copies it from this address during the call
    address, size = code.buffer_info()
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", size // 8, address))


def _address(value: object) -> str:
    """One spelling for each address: no scope, and IPv4 as such where IPv6 carries it."""
    parsed = ip_address(str(value).partition("%")[0])
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return str(parsed)
