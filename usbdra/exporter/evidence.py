# SPDX-License-Identifier: Apache-2.0
"""What the agent itself can tell of a connection that the unprivileged exporter hands it.

Owns the questions to the kernel about a descriptor from a process that may be anyone's by now.
The answers are the kernel's: on the host's network the exporter cannot forge an address it has no
route from. Elsewhere it could: in a namespace of its own making every address is its own, so the
socket's namespace is looked at first. Must not believe what comes with the descriptor, but for the
node's name, which `addresses` must bear out.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Protocol

from usbdra.errors import Refused
from usbdra.exporter.broker import Peer
from usbdra.exporter.policy import AccessPolicy
from usbdra.transport.ktls import RX, TX, Encryption
from usbdra.types import NodeName

_SO_NETNS_COOKIE = 71  # include/uapi/asm-generic/socket.h
_SIOCGSKNS = 0x894C  # include/uapi/linux/sockios.h
_ESTABLISHED = 1  # net/tcp_states.h TCP_ESTABLISHED, the first byte of struct tcp_info

Addresses = Callable[[NodeName], Awaitable[Collection[str]]]
"""The addresses of a node, from somewhere the exporter has no hand in. Raises UsbdraError."""


class Ciphers(Protocol):
    """The part of `_native.ktls` that tells what the kernel does with a socket."""

    def cipher_in_use(self, sock: int, direction: int, /) -> int:
        """The cipher of this direction, 0 when none is set."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Vouches for a peer by its connection, to the agent of `node`.

    `port` is where our exporter listens, 0 for anywhere (tests). `networks` narrows who may
    connect at all, as it does in the exporter.
    """

    node: NodeName
    port: int
    addresses: Addresses
    networks: AccessPolicy
    encryption: Encryption
    kernel: Ciphers

    async def __call__(self, told: Peer, sock: socket.socket) -> Peer:
        """The peer as the kernel knows it, by the name that its address bears out.

        Raises Refused with what does not fit.
        """
        _require_tcp(sock)
        _require_our_network(sock)
        address, port = _ends(sock, self.port)
        decision = self.networks.connection(address)
        if not decision.allowed:
            raise Refused(decision.detail)
        encrypted = self._encrypted(sock)
        if not encrypted and self.encryption is Encryption.REQUIRED:
            raise Refused("the connection is not encrypted by the kernel, which is required here")
        if told.node is None:
            raise Refused("a device of this node is given only over an authenticated link")
        if told.node == self.node:
            # Its pods have their devices without a link; who asks by this name is the exporter.
            raise Refused(f"node {told.node} does not import from itself")
        known = {str(ip_address(one)) for one in await self.addresses(told.node)}
        if str(ip_address(address.partition("%")[0])) not in known:
            raise Refused(
                f"{address} is no InternalIP of node {told.node} (it has "
                f"{', '.join(sorted(known)) or 'none'}); links go between InternalIPs"
            )
        return Peer(address, port, told.node, encrypted, told.node_uid)

    def _encrypted(self, sock: socket.socket) -> bool:
        try:
            return all(self.kernel.cipher_in_use(sock.fileno(), way) for way in (TX, RX))
        except OSError:  # the kernel has no TLS on this socket
            return False


def _require_tcp(sock: socket.socket) -> None:
    """A live TCP connection of the internet families, and nothing else."""
    # Not what Python noted down at the socket's making: what the kernel has behind the number.
    asked = (socket.SO_DOMAIN, socket.SO_TYPE, socket.SO_PROTOCOL)
    family, kind, protocol = (sock.getsockopt(socket.SOL_SOCKET, option) for option in asked)
    tcp = (kind, protocol) == (socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if not tcp or family not in (socket.AF_INET, socket.AF_INET6):
        raise Refused("what the exporter handed over is no TCP socket")
    if sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _ESTABLISHED:
        raise Refused("the connection that the exporter handed over is not established")


def _require_our_network(sock: socket.socket) -> None:
    """A socket of this process's own network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as own:
        if _network(sock) != _network(own):
            raise Refused("the connection that the exporter handed over is of another network")


def _network(sock: socket.socket) -> object:
    """What tells the socket's network namespace from others."""
    try:
        return sock.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8)
    except OSError as exc:
        if exc.errno != errno.ENOPROTOOPT:
            raise
    # Before Linux 5.14: a descriptor of the namespace, which needs the privilege that we have.
    fd = fcntl.ioctl(sock, _SIOCGSKNS)
    try:
        found = os.fstat(fd)
        return found.st_dev, found.st_ino
    finally:
        os.close(fd)


def _ends(sock: socket.socket, port: int) -> tuple[str, int]:
    """(address, port) of the other end. Raises Refused for a connection not made to our port."""
    try:
        peer, own = sock.getpeername(), sock.getsockname()
    except OSError as exc:
        raise Refused(f"the connection is over: {exc.strerror}") from exc
    if port and own[1] != port:
        raise Refused(f"the connection is to port {own[1]}, not to the exporter's {port}")
    return str(peer[0]), int(peer[1])


def socket_of(fd: int) -> socket.socket:
    """The socket behind a descriptor, which it now owns. Raises Refused, with fd closed."""
    try:
        sock = socket.socket(fileno=fd)
    except OSError as exc:
        os.close(fd)
        raise Refused("what the exporter handed over is no socket") from exc
    sock.setblocking(False)
    return sock
