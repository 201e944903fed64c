# SPDX-License-Identifier: Apache-2.0
"""The handshake on real TCP connections, with records of our own where the kernel's would be."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.fakes.certificates import certificates
from tests.fakes.ktls import RecordKeys, UserTls
from usbdra.errors import (
    EncryptionUnavailable,
    LinkError,
    NotAuthenticated,
    PeerClosed,
    PeerTimeout,
    ProtocolError,
)
from usbdra.transport import handshake, ktls, sockets
from usbdra.transport.handshake import Secured
from usbdra.transport.keys import SUITES, KeyLog, TrafficSecrets, traffic_keys
from usbdra.transport.ktls import Encryption, Role
from usbdra.transport.tls import PeerCertificate

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def tls() -> Iterator[UserTls]:
    fake = UserTls()
    yield fake
    fake.close()


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """A connected TCP pair: (client, server), non-blocking."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    client.setblocking(False)
    server.setblocking(False)
    with client, server:
        yield client, server


async def secure(
    sock: socket.socket,
    role: Role,
    kernel: ktls.KernelTls,
    *,
    who: str = "",
    expect: str | None = None,
    seconds: float = 5.0,
) -> PeerCertificate:
    who = who or ("a" if role is Role.SERVER else "b")
    secured = await handshake.secure(
        sock,
        role,
        certificates().identity(who).context(role),
        deadline=sockets.deadline_in(seconds),
        kernel=kernel,
        expect=expect,
    )
    assert secured.encrypted
    return secured.certificate


async def both(pair: Pair, tls: UserTls, **client: str) -> list[PeerCertificate | BaseException]:
    results = await asyncio.gather(
        secure(pair[0], Role.CLIENT, tls, **client),  # type: ignore[arg-type]
        secure(pair[1], Role.SERVER, tls),
        return_exceptions=True,
    )
    return list(results)


async def test_both_ends_know_each_other_and_talk(pair: Pair, tls: UserTls) -> None:
    client, server = pair
    at_client, at_server = await both(pair, tls, expect="node-a")
    assert isinstance(at_client, PeerCertificate)
    assert isinstance(at_server, PeerCertificate)
    assert (at_client.node, at_server.node) == ("node-a", "node-b")
    loop = asyncio.get_running_loop()
    for sender, receiver in ((client, server), (server, client), (client, server)):
        await loop.sock_sendall(sender, b"x" * 40000)
        got = await sockets.read_exactly(receiver, 40000, sockets.deadline_in(5), "data")
        assert got == b"x" * 40000
    assert tls.records >= 9
    assert tls.errors == []
    # Both ends, both directions, from the first record on.
    assert sorted(tls.seen) == [(1, 52, 0), (1, 52, 0), (2, 52, 0), (2, 52, 0)]


class OneSegment:
    """Holds back the client's last flight so that it goes out in one segment with its first
    request, as the kernel may well do."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def attach_ulp(self, sock: int, /) -> None: ...

    def set_keys(
        self, sock: int, direction: int, cipher: int, key: bytes, iv: bytes, seq: int = 0, /
    ) -> None:
        if direction == ktls.TX:
            self.sealed = RecordKeys(key, iv).seal(b"first request")


async def test_not_a_byte_beyond_the_handshake_is_taken(
    pair: Pair, tls: UserTls, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, server = pair
    kernel = OneSegment(client)
    write_all = sockets.write_all
    flights: list[bytes] = []

    async def hold_last(
        sock: socket.socket, data: bytes | bytearray, deadline: float, what: str
    ) -> None:
        if sock is client and flights:
            flights.append(bytes(data))
            return
        if sock is client:
            flights.append(b"")
        await write_all(sock, data, deadline, what)

    monkeypatch.setattr(sockets, "write_all", hold_last)
    serving = asyncio.create_task(secure(server, Role.SERVER, tls))
    await secure(client, Role.CLIENT, kernel)
    client.send(b"".join(flights) + kernel.sealed)  # client Finished and data in one segment
    assert (await serving).node == "node-b"
    got = await sockets.read_exactly(server, 13, sockets.deadline_in(5), "data")
    assert got == b"first request"


@pytest.mark.parametrize("expect", ["node-a", "NODE-A", "localhost", "127.0.0.1", "::1", "0:0::1"])
async def test_expected_names(pair: Pair, tls: UserTls, expect: str) -> None:
    results = await both(pair, tls, expect=expect)
    assert [getattr(one, "node", one) for one in results] == ["node-a", "node-b"]


@pytest.mark.parametrize("expect", ["node-b", "node", "127.0.0.2", "a"])
async def test_server_that_is_not_the_one_dialled(pair: Pair, tls: UserTls, expect: str) -> None:
    client = asyncio.create_task(secure(pair[0], Role.CLIENT, tls, expect=expect))
    server = asyncio.create_task(secure(pair[1], Role.SERVER, tls))
    with pytest.raises(NotAuthenticated, match=f"not for {expect} but for node-a"):
        await client
    pair[0].close()
    with pytest.raises((PeerClosed, LinkError)):
        await server
    assert tls.seen == []


async def test_client_of_another_authority(pair: Pair, tls: UserTls) -> None:
    client, server = await both(pair, tls, who="stranger")
    assert isinstance(server, NotAuthenticated | LinkError)
    assert isinstance(client, NotAuthenticated)
    assert "peer's certificate" in str(client)


async def test_server_refuses_a_client_it_does_not_know(pair: Pair, tls: UserTls) -> None:
    """The client is through before its certificate is looked at; the alert comes as a record."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    server = asyncio.create_task(secure(pair[1], Role.SERVER, tls))

    def careless_client() -> None:
        sock = pair[0].dup()
        sock.setblocking(True)
        with sock, context.wrap_socket(sock) as wrapped, pytest.raises(ssl.SSLError):
            wrapped.recv(1)

    await asyncio.to_thread(careless_client)
    with pytest.raises(NotAuthenticated, match="peer did not return a certificate"):
        await server


async def test_r27_no_ticket_follows_the_handshake(pair: Pair, tls: UserTls) -> None:
    """A stock TLS client gets no record from our server that the kernel could not place."""
    b = certificates().b
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(b / "ca.crt")
    context.load_cert_chain(b / "tls.crt", b / "tls.key")
    context.set_alpn_protocols([ktls.ENCRYPTED])

    def stock_client() -> int:
        sock = pair[0].dup()
        sock.setblocking(True)
        sock.settimeout(5)
        with context.wrap_socket(sock) as wrapped:
            wrapped.sendall(b"hello")
            assert wrapped.recv(5) == b"world"
            return context.session_stats()["misses"] + int(
                wrapped.session is not None and wrapped.session.has_ticket
            )

    client = asyncio.create_task(asyncio.to_thread(stock_client))
    await secure(pair[1], Role.SERVER, tls)
    deadline = sockets.deadline_in(5)
    assert await sockets.read_exactly(pair[1], 5, deadline, "data") == b"hello"
    await sockets.write_all(pair[1], b"world", deadline, "data")
    assert await client == 0


async def test_r27_peer_with_tickets_ends_the_link(pair: Pair, tls: UserTls) -> None:
    a = certificates().a
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_verify_locations(a / "ca.crt")
    context.load_cert_chain(a / "tls.crt", a / "tls.key")
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols([ktls.ENCRYPTED])

    def stock_server() -> None:
        sock = pair[1].dup()
        sock.setblocking(True)
        os.close(context.wrap_socket(sock, server_side=True).detach())

    server = asyncio.create_task(asyncio.to_thread(stock_server))
    await secure(pair[0], Role.CLIENT, tls)
    await server
    with pytest.raises(LinkError):
        await sockets.read_exactly(pair[0], 1, sockets.deadline_in(5), "data")
    assert tls.errors == ["record of type 22"]


async def test_peer_without_tls(pair: Pair, tls: UserTls) -> None:
    pair[0].send(bytes.fromhex("0111800500000000"))
    with pytest.raises(ProtocolError, match=r"does not speak TLS \(its first bytes are 01 11 80"):
        await secure(pair[1], Role.SERVER, tls)


@pytest.mark.parametrize(
    ("first", "error"),
    [
        ("16030100020100", "no client hello"),
        ("1603010030" + "02" * 48, "no client hello"),
        ("160301ffff", "over 65536 bytes"),
        ("1603014101", "over 65536 bytes"),
    ],
)
async def test_malformed_hello(pair: Pair, tls: UserTls, first: str, error: str) -> None:
    pair[0].send(bytes.fromhex(first))
    with pytest.raises(ProtocolError, match=error):
        await secure(pair[1], Role.SERVER, tls)


async def test_silence_and_half_a_handshake(pair: Pair, tls: UserTls) -> None:
    pair[0].send(b"\x16\x03\x01")
    with pytest.raises(PeerTimeout, match="sent 3 of 5 bytes"):
        await secure(pair[1], Role.SERVER, tls, seconds=0.05)


async def test_peer_hangs_up(pair: Pair, tls: UserTls) -> None:
    pair[0].send(b"\x16\x03\x01")
    pair[0].close()
    with pytest.raises(PeerClosed, match="after 3 of 5 bytes of the TLS handshake"):
        await secure(pair[1], Role.SERVER, tls)


async def test_old_tls_is_refused(pair: Pair, tls: UserTls) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    server = asyncio.create_task(secure(pair[1], Role.SERVER, tls))

    def old_client() -> None:
        sock = pair[0].dup()
        sock.setblocking(True)
        with sock, pytest.raises(ssl.SSLError):
            context.wrap_socket(sock)

    await asyncio.to_thread(old_client)
    with pytest.raises(ProtocolError, match="unsupported protocol"):
        await server


class NoKernelTls:
    """A kernel without the module."""

    def attach_ulp(self, sock: int, /) -> None:
        raise OSError(errno.ENOENT, "setsockopt(TCP_ULP)")

    def set_keys(
        self, sock: int, direction: int, cipher: int, key: bytes, iv: bytes, seq: int = 0, /
    ) -> None:
        raise AssertionError


class PeerIsGone:
    """A kernel whose socket was ended by the peer: tcp_set_ulp looks at the state."""

    def __init__(self, code: int) -> None:
        self.code = code

    def attach_ulp(self, sock: int, /) -> None:
        raise OSError(self.code, os.strerror(self.code))

    def set_keys(
        self, sock: int, direction: int, cipher: int, key: bytes, iv: bytes, seq: int = 0, /
    ) -> None:
        raise AssertionError


@pytest.mark.parametrize("code", [errno.ENOTCONN, errno.ECONNRESET, errno.EPIPE])
def test_a_peer_that_gave_up_is_no_kernel_without_tls(code: int) -> None:
    """A slow node, whose peer waited no longer, was told to load a module that it has."""
    secrets = TrafficSecrets(bytes(48), bytes(48))
    suite = next(iter(SUITES.values()))
    with socket.socket() as sock, pytest.raises(LinkError, match="peer ended the conn") as told:
        ktls.install(sock, ktls.Role.CLIENT, suite, secrets, PeerIsGone(code))
    assert told.value.reason == "LinkLost"
    assert "modprobe" not in str(told.value)


def test_kernel_without_tls_names_the_remedy() -> None:
    with pytest.raises(EncryptionUnavailable, match="modprobe tls"):
        ktls.require(NoKernelTls())


def test_kernel_with_tls() -> None:
    ktls.require(UserTls())


async def test_keys_match_what_openssl_uses(pair: Pair) -> None:
    """Our derived keys open a record that OpenSSL itself sealed."""
    a, b = certificates().identity("a"), certificates().identity("b")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = b.context(Role.CLIENT)
    client = context.ssl.wrap_bio(incoming, outgoing)
    server_context = a.context(Role.SERVER)
    server = server_context.ssl.wrap_bio(outgoing, incoming, server_side=True)
    log, random = KeyLog(), b""
    for end, owner in ((client, context), (server, server_context), (client, context)) * 2:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            random = random or outgoing.read()
            if len(random) > 32:
                outgoing.write(random)
                random = random[11:43]
        if owner is context:
            log.add(owner.take_log())
    client.write(b"plain")
    record = outgoing.read()
    suite = SUITES[(client.cipher() or ("",))[0]]
    secrets = log.secrets(random)
    assert isinstance(secrets, TrafficSecrets)
    keys = traffic_keys(secrets.client, suite)
    assert RecordKeys(keys.key, keys.iv).open(record[:5], record[5:]) == (23, b"plain")
    assert context.take_log() == b""


async def settle(
    pair: Pair, tls: ktls.KernelTls, client: Encryption, server: Encryption
) -> list[bool | str]:
    """Whether the link is encrypted, as each end has it, or the error it got."""
    kernels = {Role.CLIENT: tls, Role.SERVER: tls}
    ends = ((Role.CLIENT, "b", client), (Role.SERVER, "a", server))
    results = await asyncio.gather(
        *(
            handshake.secure(
                sock,
                role,
                certificates().identity(who).context(role),
                deadline=sockets.deadline_in(5),
                kernel=kernels[role],
                protocols=ktls.protocols(encryption, kernels[role]),
            )
            for sock, (role, who, encryption) in zip(pair, ends, strict=True)
        ),
        return_exceptions=True,
    )
    return [one.encrypted if isinstance(one, Secured) else str(one) for one in results]


REQUIRED, ALLOWED, OFF = Encryption.REQUIRED, Encryption.ALLOWED, Encryption.OFF


@pytest.mark.parametrize(
    ("client", "server", "encrypted"),
    [
        (REQUIRED, REQUIRED, True),
        (REQUIRED, ALLOWED, True),
        (ALLOWED, REQUIRED, True),
        (ALLOWED, ALLOWED, True),
        (ALLOWED, OFF, False),
        (OFF, ALLOWED, False),
        (OFF, OFF, False),
    ],
)
async def test_both_ends_settle_for_the_same(
    pair: Pair, tls: UserTls, client: Encryption, server: Encryption, encrypted: bool
) -> None:
    assert await settle(pair, tls, client, server) == [encrypted, encrypted]
    deadline = sockets.deadline_in(5)
    await sockets.write_all(pair[0], b"after the handshake", deadline, "data")
    got = await sockets.read_exactly(pair[1], 19, deadline, "data")
    assert got == b"after the handshake"
    assert bool(tls.seen) is encrypted


@pytest.mark.parametrize(("client", "server"), [(REQUIRED, OFF), (OFF, REQUIRED)])
async def test_who_requires_encryption_gets_no_link_without(
    pair: Pair, tls: UserTls, client: Encryption, server: Encryption
) -> None:
    requires, has_none = await settle(pair, tls, client, server)
    if client is OFF:
        requires, has_none = has_none, requires
    assert "agrees to no encrypted link, which this end requires" in str(requires)
    assert "requires an encrypted link and this end has none" in str(has_none)
    assert tls.seen == []


async def test_kernel_without_tls_decides_by_the_setting(pair: Pair) -> None:
    none = NoKernelTls()
    assert ktls.protocols(OFF, none) == (ktls.CLEAR,)
    assert ktls.protocols(ALLOWED, none) == (ktls.CLEAR,)
    with pytest.raises(EncryptionUnavailable, match="encryption: Allowed"):
        ktls.protocols(REQUIRED, none)
    assert await settle(pair, none, ALLOWED, ALLOWED) == [False, False]
