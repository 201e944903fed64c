# SPDX-License-Identifier: Apache-2.0
"""TCP between nodes: connect, options, exact reads and whole writes, all with deadlines.

Owns sockets until they go to a kernel driver. Must not know messages or keys. Sockets are
non-blocking and owned by the running event loop's thread.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from usbdra.errors import LinkError, NotAuthenticated, PeerClosed, PeerTimeout, Unreachable

TCP_RTO_MAX_MS = 44
"""linux/tcp.h since Linux 6.15; not in Python's socket module."""
_SOL_TLS = 282
_TLS_GET_RECORD_TYPE = 2
_RECORD_ALERT = 21
_ALERTS = {
    0: "close notify",
    40: "handshake failure",
    42: "bad certificate",
    43: "unsupported certificate",
    44: "certificate revoked",
    45: "certificate expired",
    46: "certificate unknown",
    48: "unknown certificate authority",
    49: "access denied",
    51: "decrypt error",
    80: "internal error",
    116: "certificate required",
}
_CERTIFICATE_ALERTS = frozenset((42, 43, 44, 45, 46, 48, 49, 116))


@dataclass(frozen=True, slots=True)
class LinkTimeouts:
    """Times of one link, in seconds.

    `connect`, `handshake`, `request` and `answer` bound its set-up; an answer covers the
    exporter's bind, during which drivers let go of the device and of those asked for before it;
    with all that follows it must fit into Prepare's limit (plugin/prepare.py). The rest is for
    the kernel: an idle dead peer is known after keep_idle + keep_interval * keep_count, one that
    owes an acknowledgement after `user`, both within 15 s. `resend` is the longest pause before
    what was not acknowledged is sent again, so that a link that outlives a cut goes on as soon
    after it, not as late as it was long.
    """

    connect: float = 5.0
    handshake: float = 5.0
    request: float = 5.0
    answer: float = 26.0
    keep_idle: int = 5
    keep_interval: int = 3
    keep_count: int = 3
    user: float = 12.0
    resend: float = 1.0

    @property
    def dead_after(self) -> float:
        """The longest time a dead peer stays unnoticed once the kernel has the socket."""
        return max(self.user, self.keep_idle + self.keep_interval * self.keep_count)


def deadline_in(seconds: float) -> float:
    """A point on the running loop's clock, as the `deadline` parameters below want it."""
    return asyncio.get_running_loop().time() + seconds


def tune(sock: socket.socket, timeouts: LinkTimeouts) -> None:
    """Set what both ends need before the kernel gets the socket.

    USB/IP has no heartbeat of its own, so a silent loss is only seen by TCP: keepalive for an
    idle link, TCP_USER_TIMEOUT for one with data on the way (net/ipv4/tcp_timer.c). NODELAY,
    since each URB is a message somebody waits for, and its last segment would wait for a round
    trip. All else is the kernel's default or what the node's administrator has set, buffers and
    congestion control too: measured by `make throughput`, judged in docs/performance.md.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, timeouts.keep_idle)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, timeouts.keep_interval)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, timeouts.keep_count)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(timeouts.user * 1000))
    with suppress(OSError):  # before Linux 6.15 the pauses double without end
        sock.setsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS, round(timeouts.resend * 1000))


async def connect(host: str, port: int, timeouts: LinkTimeouts) -> socket.socket:
    """A tuned connection to the first address of `host` that answers; the caller closes it.

    The time is shared among the addresses, so that a dead first one leaves time for the next.
    Raises Unreachable naming every address tried.
    """
    deadline = deadline_in(timeouts.connect)
    addresses = await _resolve(host, port, deadline)
    failures = []
    for index, (family, address) in enumerate(addresses):
        now = asyncio.get_running_loop().time()
        share = (deadline - now) / (len(addresses) - index)
        try:
            return await _connect_one(family, address, now + share, timeouts)
        except TimeoutError:
            failures.append(f"{address[0]}: no answer within {share:.1f} s")
        except OSError as exc:
            # asyncio puts the address where the system's word for the error was.
            failures.append(f"{address[0]}: {os.strerror(exc.errno or 0)}")
    raise Unreachable(f"cannot connect to {host} port {port}: {'; '.join(failures)}")


async def answers(address: str, port: int, seconds: float) -> bool:
    """Whether something accepts connections there; takes `seconds` when nothing does.

    `address` is an IP address. The connection is closed at once.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        (await _connect_one(family, (address, port), until, LinkTimeouts())).close()
    except OSError:  # TimeoutError is one
        await asyncio.sleep(until - loop.time())
        return False
    return True


async def _resolve(host: str, port: int, deadline: float) -> list[tuple[int, tuple[Any, ...]]]:
    """(family, address) in the resolver's order, each once."""
    loop = asyncio.get_running_loop()
    try:
        # An address needs no resolver and no thread.
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (socket.gaierror, UnicodeError):
        try:
            async with asyncio.timeout_at(deadline):
                found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except TimeoutError as exc:
            raise Unreachable(f"cannot resolve {host}: no answer in time") from exc
        except (socket.gaierror, UnicodeError) as exc:
            raise Unreachable(f"cannot resolve {host}: {exc}") from exc
    return list(dict.fromkeys((int(family), address) for family, _, _, _, address in found))


async def _connect_one(
    family: int, address: tuple[Any, ...], deadline: float, timeouts: LinkTimeouts
) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        tune(sock, timeouts)
        async with asyncio.timeout_at(deadline):
            await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


async def read_exactly(sock: socket.socket, size: int, deadline: float, what: str) -> bytes:
    """Exactly `size` bytes and not one more.

    `what` names the awaited message in errors. Raises PeerTimeout, PeerClosed, NotAuthenticated
    (the peer's alert says so) or LinkError.
    """
    loop = asyncio.get_running_loop()
    buffer = bytearray(size)
    view = memoryview(buffer)
    received = 0
    try:
        async with asyncio.timeout_at(deadline):
            while received < size:
                count = await loop.sock_recv_into(sock, view[received:])
                if not count:
                    raise PeerClosed(
                        f"peer closed the connection after {received} of {size} bytes of {what}",
                        received,
                        size,
                    )
                received += count
    except TimeoutError as exc:
        raise PeerTimeout(f"peer sent {received} of {size} bytes of {what} in time") from exc
    except OSError as exc:
        raise _receive_error(sock, exc, what) from exc
    return bytes(buffer)


async def write_all(
    sock: socket.socket, data: bytes | bytearray, deadline: float, what: str
) -> None:
    """Send everything. Raises PeerTimeout or LinkError."""
    try:
        async with asyncio.timeout_at(deadline):
            await asyncio.get_running_loop().sock_sendall(sock, data)
    except TimeoutError as exc:
        raise PeerTimeout(f"peer took no {what} in time") from exc
    except OSError as exc:
        raise LinkError(f"connection broke while sending {what}: {exc.strerror or exc}") from exc


def _receive_error(sock: socket.socket, exc: OSError, what: str) -> LinkError:
    """Name what kernel TLS says by errno (net/tls/tls_sw.c): EIO for a record that is not data,
    EBADMSG for one that does not decrypt."""
    if exc.errno == errno.EBADMSG:
        return LinkError(f"a record of {what} does not decrypt: damaged, or keys differ")
    if exc.errno == errno.EIO:
        return control_record_error(*_read_control_record(sock), what)
    return LinkError(f"connection broke while waiting for {what}: {exc.strerror or exc}")


def _read_control_record(sock: socket.socket) -> tuple[int, bytes]:
    """Type and first bytes of the record that made a plain read fail; (0, b"") if unknown."""
    try:
        data, ancillary, _flags, _address = sock.recvmsg(2, socket.CMSG_SPACE(1))
    except OSError:
        return 0, b""
    for level, kind, value in ancillary:
        if (level, kind) == (_SOL_TLS, _TLS_GET_RECORD_TYPE) and value:
            return value[0], data
    return 0, b""


def control_record_error(record_type: int, data: bytes, what: str) -> LinkError:
    """The error for a TLS record that is no data where `what` was due.

    An alert carries the peer's reason: with TLS 1.3 a refused client certificate is only heard
    of here. Anything else (a session ticket, a key update) cannot be served on a kernel link,
    which ends visibly.
    """
    if record_type != _RECORD_ALERT or len(data) < 2:
        kind = f"type {record_type}" if record_type else "not data"
        return LinkError(
            f"peer sent a TLS record ({kind}) in place of {what}; tickets and key updates "
            "must be off at the peer"
        )
    alert = data[1]
    text = _ALERTS.get(alert, f"alert {alert}")
    if alert in _CERTIFICATE_ALERTS:
        return NotAuthenticated(f"peer did not accept our certificate: {text}")
    if alert == 0:
        return PeerClosed(f"peer closed the TLS link in place of {what}", 0, 0)
    return LinkError(f"peer ended the TLS link in place of {what}: {text}")
