# SPDX-License-Identifier: Apache-2.0
"""What the agent believes of a descriptor: only what its own kernel and its own API say."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.tcp import TcpPair
from usbdra.errors import Refused
from usbdra.exporter.broker import Peer
from usbdra.exporter.evidence import Evidence, socket_of
from usbdra.exporter.policy import AccessPolicy, parse_networks
from usbdra.transport.ktls import Encryption
from usbdra.types import NodeName

TOLD = Peer("203.0.113.9", 1, NodeName("node-b"), True)  # what a liar says of himself


class Ciphers:
    """Both directions in kernel TLS, or as told."""

    def __init__(self, *found: int) -> None:
        self.found = found

    def cipher_in_use(self, sock: int, direction: int, /) -> int:
        if not self.found:
            raise OSError(92, "Protocol not available")
        return self.found[direction - 1]


def evidence(**changes: Any) -> Evidence:
    async def addresses(node: NodeName) -> list[str]:
        return {
            "node-a": ["127.0.0.1"],
            "node-b": ["127.0.0.1", "::1"],
            "node-c": ["127.0.0.3"],
            "gone": [],
        }[node]

    options: dict[str, Any] = {
        "node": NodeName("node-a"),
        "port": 0,
        "addresses": addresses,
        "networks": AccessPolicy(),
        "encryption": Encryption.REQUIRED,
        "kernel": Ciphers(52, 52),
        **changes,
    }
    return Evidence(**options)


@pytest.fixture
def link() -> Iterator[TcpPair]:
    with TcpPair() as pair:
        yield pair


async def test_the_address_is_the_kernels_not_the_exporters(link: TcpPair) -> None:
    peer = await evidence()(TOLD, link.ours)
    host, port = link.ours.getpeername()
    assert peer == Peer(host, port, NodeName("node-b"), True)


async def test_ipv6_is_compared_as_an_address() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
        ours = socket.create_connection(listener.getsockname()[:2])
        theirs, _ = listener.accept()
    with ours, theirs:

        async def addresses(node: NodeName) -> list[str]:
            return ["0:0:0:0:0:0:0:1"]

        peer = await evidence(addresses=addresses)(TOLD, ours)
        assert peer.address == "::1"


@pytest.mark.parametrize(
    ("node", "error"),
    [
        ("node-c", r"127.0.0.1 is no InternalIP of node node-c \(it has 127.0.0.3\)"),
        ("gone", r"127.0.0.1 is no InternalIP of node gone \(it has none\)"),
        (None, "only over an authenticated link"),
        ("node-a", "node-a does not import from itself"),
    ],
)
async def test_another_nodes_name_is_refused(link: TcpPair, node: str | None, error: str) -> None:
    told = Peer("127.0.0.3", 1, None if node is None else NodeName(node), True)
    with pytest.raises(Refused, match=error):
        await evidence()(told, link.ours)


async def test_a_connection_to_another_port_is_refused(link: TcpPair) -> None:
    """Such as one that the exporter made itself, from a port of its own."""
    with pytest.raises(Refused, match=r"is to port \d+, not to the exporter's 3241"):
        await evidence(port=3241)(TOLD, link.ours)
    assert await evidence(port=link.peer.getsockname()[1])(TOLD, link.peer)


async def test_networks_hold_here_too(link: TcpPair) -> None:
    policy = AccessPolicy(networks=parse_networks(("10.0.0.0/8",)))
    with pytest.raises(Refused, match=r"127.0.0.1 is in none of the allowed networks"):
        await evidence(networks=policy)(TOLD, link.ours)


@pytest.mark.parametrize("found", [(), (52, 0), (0, 52), (0, 0)])
async def test_encryption_is_the_kernels_word(link: TcpPair, found: tuple[int, ...]) -> None:
    with pytest.raises(Refused, match="not encrypted by the kernel"):
        await evidence(kernel=Ciphers(*found))(TOLD, link.ours)
    for encryption in (Encryption.ALLOWED, Encryption.OFF):
        peer = await evidence(kernel=Ciphers(*found), encryption=encryption)(TOLD, link.ours)
        assert not peer.encrypted


_ELSEWHERE = """
import ctypes, fcntl, os, socket, struct, sys
NEWUSER, NEWNET = 0x10000000, 0x40000000
flags = NEWNET if os.geteuid() == 0 else NEWUSER | NEWNET
assert ctypes.CDLL(None, use_errno=True).unshare(flags) == 0, os.strerror(ctypes.get_errno())
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:  # ifconfig lo up
    fcntl.ioctl(one, 0x8914, struct.pack("16sh22x", b"lo", 1))
listener = socket.create_server(("127.0.0.1", 3241))
peer = socket.create_connection(listener.getsockname())
ours, _ = listener.accept()
with socket.socket(fileno=int(sys.argv[1])) as out:
    socket.send_fds(out, [b"x"], [ours.fileno()])
    out.recv(1)
"""


@pytest.fixture
def elsewhere() -> Iterator[socket.socket]:
    """A connection to port 3241 in a namespace where its maker has every address it likes."""
    here, there = socket.socketpair()
    with here, there:
        command = [sys.executable, "-c", _ELSEWHERE, str(there.fileno())]
        with subprocess.Popen(command, pass_fds=(there.fileno(),)):
            _, fds, _, _ = socket.recv_fds(here, 1, 1)
            with socket_of(fds[0]) as sock:
                yield sock
            here.send(b"x")


async def test_a_network_of_the_exporters_own_is_refused(elsewhere: socket.socket) -> None:
    """There it can be any node: address, port and state are all as they should be."""
    assert elsewhere.getpeername()[0] == "127.0.0.1"
    assert elsewhere.getsockname() == ("127.0.0.1", 3241)
    with pytest.raises(Refused, match="is of another network"):
        await evidence(port=3241)(TOLD, elsewhere)


async def test_older_kernels_tell_networks_apart_too(
    elsewhere: socket.socket, link: TcpPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("usbdra.exporter.evidence._SO_NETNS_COOKIE", 9999)
    if os.geteuid() != 0:  # the agent is root; others may not ask these kernels
        with pytest.raises(PermissionError):
            await evidence()(TOLD, link.ours)
        return
    assert await evidence()(TOLD, link.ours)
    with pytest.raises(Refused, match="is of another network"):
        await evidence()(TOLD, elsewhere)


def not_sockets() -> Iterator[tuple[str, int]]:
    yield "no socket", os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    yield "no socket", os.memfd_create("x", os.MFD_CLOEXEC)
    reading, writing = os.pipe2(os.O_CLOEXEC)
    os.close(writing)
    yield "no socket", reading
    yield "no socket", os.open("/", os.O_PATH | os.O_CLOEXEC)


def test_what_is_no_socket_is_closed() -> None:
    for error, fd in not_sockets():
        with pytest.raises(Refused, match=error):
            socket_of(fd)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        (socket.AF_UNIX, socket.SOCK_STREAM),
        (socket.AF_INET, socket.SOCK_DGRAM),
        (socket.AF_NETLINK, socket.SOCK_RAW),
    ],
)
async def test_other_sockets_are_refused(family: int, kind: int) -> None:
    with socket.socket(family, kind) as sock, pytest.raises(Refused, match="is no TCP socket"):
        await evidence()(TOLD, sock)


async def test_tcp_that_is_not_established_is_refused(link: TcpPair) -> None:
    with socket.socket() as fresh, pytest.raises(Refused, match="is not established"):
        await evidence()(TOLD, fresh)
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, pytest.raises(Refused, match="is not established"):
        await evidence()(TOLD, listener)
    link.peer.close()
    with pytest.raises(Refused, match="is not established"):
        await evidence()(TOLD, link.ours)
