# SPDX-License-Identifier: Apache-2.0
"""Dialling our own exporter, encrypted and plain, and peers that answer anything."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from tests.fakes.broker import KEYBOARD, STICK, FakeBroker
from tests.fakes.certificates import certificates
from tests.fakes.ktls import UserTls
from tests.unit.importer.conftest import Scripted
from tests.waiting import patience
from usbdra.errors import (
    ConfigError,
    DeviceBusy,
    EncryptionUnavailable,
    IdentityChanged,
    NotAuthenticated,
    NotFound,
    PeerClosed,
    PeerRefused,
    PeerTimeout,
    ProtocolError,
    Refused,
    UsbdraError,
)
from usbdra.exporter.broker import Peer
from usbdra.exporter.policy import AccessPolicy
from usbdra.exporter.server import ExporterServer, Listen
from usbdra.importer.dial import Link, dial
from usbdra.transport.sockets import LinkTimeouts
from usbdra.types import BusId, ClaimUid, NodeName
from usbdra.usbip import wire
from usbdra.usbip.extension import ClaimRef, Inventory, InventoryRequest

LOOPBACK = Listen(addresses=("127.0.0.1",), port=0)
CLAIM = ClaimRef("lab", "stick", ClaimUid("2f1c-77"))
FAST = LinkTimeouts(answer=0.1)


@contextlib.asynccontextmanager
async def encrypted(
    broker: FakeBroker, tls: UserTls, *, who: str = "b", **options: Any
) -> AsyncIterator[Link]:
    """A link from node b to node a's exporter."""
    server = ExporterServer(
        broker, LOOPBACK, identity=certificates().identity("a"), kernel=tls, **options
    )
    async with server:
        link = await dial(
            *server.addresses[0],
            identity=certificates().identity(who),
            expect="node-a",
            kernel=tls,
        )
        async with link:
            yield link


async def test_a_peer_that_leaves_while_it_waits_for_news_is_not_waited_with(
    broker: FakeBroker, tls: UserTls
) -> None:
    begun, over = asyncio.Event(), asyncio.Event()

    async def visited(peer: Peer, request: InventoryRequest) -> Inventory:
        begun.set()
        try:
            return await asyncio.Future()
        finally:
            over.set()

    async with encrypted(broker, tls, visited=visited) as link:
        visit = asyncio.create_task(link.visit(InventoryRequest(seen="e-1", wait=300)))
        await begun.wait()
        visit.cancel()
        await asyncio.wait([visit])
        link.close()
        async with patience():
            await over.wait()


async def test_an_answer_that_was_waited_for_is_followed_by_the_next_request(
    broker: FakeBroker, tls: UserTls
) -> None:
    answers: asyncio.Queue[Inventory] = asyncio.Queue()

    async def visited(peer: Peer, request: InventoryRequest) -> Inventory:
        return await answers.get()

    async with encrypted(broker, tls, visited=visited) as link:
        for number in range(3):
            visit = asyncio.create_task(link.visit(InventoryRequest(seen="e", wait=300)))
            answers.put_nowait(Inventory(edition=f"e-{number}"))
            assert await visit == Inventory((STICK, KEYBOARD), edition=f"e-{number}")


async def test_inventory_then_grant_on_one_encrypted_link(broker: FakeBroker, tls: UserTls) -> None:
    async with encrypted(broker, tls) as link:
        assert link.peer is not None
        assert link.peer.node == "node-a"
        assert link.encrypted
        assert tuple(await link.inventory()) == (STICK, KEYBOARD)
        assert STICK.name is not None
        device = await link.grant(STICK.name, claim=CLAIM, holder="pod lab/reader")
        assert device == STICK
        request, peer = broker.requests[0]
        assert (request.claim, request.holder) == (CLAIM, "pod lab/reader")
        assert (peer.node, peer.encrypted) == ("node-b", True)
        phases = [phase for phase, _ in link.timings]
        assert phases == [
            "connect",
            "tls",
            "authorise",
            "exporter.authorise",
            "exporter.bind",
            "exporter.hand_over",
        ]
        assert dict(link.timings)["exporter.bind"] == 0.002
        with link.take_socket() as sock:
            loop = asyncio.get_running_loop()
            kernel = broker.sessions["s1"]
            await loop.sock_sendall(sock, b"submit")
            assert await loop.sock_recv(kernel, 100) == b"submit"
            await loop.sock_sendall(kernel, b"done")
            assert await loop.sock_recv(sock, 100) == b"done"
        with pytest.raises(RuntimeError, match="the link is over"):
            link.take_socket()
    assert tls.errors == []


async def test_a_serial_that_reads_like_a_name_is_granted(broker: FakeBroker, tls: UserTls) -> None:
    broker.devices = [replace(STICK, serial="60a44c")]
    async with encrypted(broker, tls) as link:
        assert (await link.grant("60a44c", claim=CLAIM)).busid == STICK.busid


async def test_progress_is_told_phase_by_phase(broker: FakeBroker) -> None:
    told: list[str] = []
    async with ExporterServer(broker, LOOPBACK, identity=None, plain=True) as server:
        link = await dial(
            *server.addresses[0],
            identity=None,
            plain=True,
            progress=lambda phase, seconds: told.append(f"{phase} {seconds >= 0}"),
        )
        async with link:
            assert await link.import_stock(STICK.busid)
    assert told == ["connect True", "authorise True"]


async def test_r30_refusal_names_the_claim_that_holds_it(broker: FakeBroker, tls: UserTls) -> None:
    broker.holders[STICK.busid] = ("s0", "claim lab/other of node-c")
    async with encrypted(broker, tls) as link:
        taken = (await link.inventory())[0]
        assert (taken.available, taken.reason) == (False, "in use by claim lab/other of node-c")
        with pytest.raises(DeviceBusy, match=r"in use by claim lab/other of node-c"):
            await link.grant("1-1.4", claim=CLAIM)


async def test_r26_revoked_node_is_refused_with_the_reason(
    broker: FakeBroker, tls: UserTls
) -> None:
    policy = AccessPolicy(nodes=frozenset((NodeName("node-c"),)))
    async with encrypted(broker, tls, policy=policy) as link:
        with pytest.raises(PeerRefused, match="node node-b is not on this exporter's list") as one:
            await link.grant("1-1.4", claim=CLAIM)
        assert (one.value.status, one.value.peer_reason) == (1, "Refused")
        with pytest.raises(PeerRefused, match="node node-b"):
            await link.inventory()
    assert broker.calls == []


async def test_refusals_of_a_usbdra_peer_say_why(broker: FakeBroker, tls: UserTls) -> None:
    async with encrypted(broker, tls) as link:
        with pytest.raises(NotFound, match="refused: no device usb-x is offered here"):
            await link.grant("usb-x")
        broker.fail_acquire = Refused("claim lab/stick is being deleted")
        with pytest.raises(PeerRefused, match="claim lab/stick is being deleted"):
            await link.grant("1-1.4", claim=CLAIM)
        with pytest.raises(PeerRefused, match="neither a device name nor a bus id") as bad:
            await link.grant("../x")
        assert bad.value.status == 5


async def test_certificate_of_a_stranger(broker: FakeBroker, tls: UserTls) -> None:
    with pytest.raises(NotAuthenticated, match="certificate"):
        async with encrypted(broker, tls, who="stranger"):
            raise AssertionError("never reached")


async def test_encryption_is_the_default() -> None:
    with pytest.raises(ConfigError, match="plain mode on purpose"):
        await dial("127.0.0.1", 1, identity=None)
    with pytest.raises(ConfigError, match="plain mode on purpose"):
        await dial("127.0.0.1", 1, identity=certificates().identity("b"), plain=True)


async def test_kernel_without_tls_fails_before_connecting() -> None:
    class Missing(UserTls):
        def attach_ulp(self, sock: int, /) -> None:
            raise OSError(2, "no tls")

    identity = certificates().identity("b")
    with pytest.raises(EncryptionUnavailable, match="modprobe tls"):
        await dial("127.0.0.1", 1, identity=identity, kernel=Missing())


async def test_plain_peer_on_the_encrypted_port(scripted: Scripted, tls: UserTls) -> None:
    async with scripted(bytes.fromhex("0111000500000005"), True) as port:
        with pytest.raises(ProtocolError, match="is it a plain USB/IP peer"):
            await dial("127.0.0.1", port, identity=certificates().identity("b"), kernel=tls)


IMPORT_OK = wire.pack_header(wire.OP_REP_IMPORT)


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        ("0111000300000001", PeerRefused, "does not offer device 1-1.4: bind it there"),
        ("0111000300000002", DeviceBusy, "in use by another session at 127.0.0.1"),
        ("0111000300000003", PeerRefused, "device 1-1.4 in an error state: rebind it there"),
        ("0111000300000004", NotFound, "has no device 1-1.4"),
        ("0111000300000005", PeerRefused, "failed to serve device 1-1.4: see its log"),
        ("0111000300000077", PeerRefused, "unknown status 119"),
        ("0106000300000000", ProtocolError, "version 0x0106, not 0x0111"),
        ("0111000500000000", ProtocolError, "code 0x0005, expected 0x0003"),
        ("011100", PeerClosed, "after 3 of 8 bytes of the answer of 127.0.0.1"),
        ("", PeerClosed, "after 0 of 8 bytes"),
        ("0111000300000000" + "00" * 100, PeerClosed, "after 100 of 312 bytes"),
        ("0111000300000000" + "00" * 312, ProtocolError, "busid '' is not a bus id"),
    ],
)
async def test_r09_each_answer_has_its_error(
    scripted: Scripted, answer: str, error: type[UsbdraError], text: str
) -> None:
    async with scripted(bytes.fromhex(answer), True) as port:
        link = await dial("127.0.0.1", port, identity=None, plain=True)
        async with link:
            with pytest.raises(error, match=text):
                await link.import_stock(STICK.busid)


@pytest.mark.parametrize("answer", ["", "011100", "0111000300000000", "0111000500000400" * 2])
async def test_r09_silence_has_a_limit(scripted: Scripted, answer: str) -> None:
    async with scripted(bytes.fromhex(answer), False) as port:
        link = await dial("127.0.0.1", port, identity=None, plain=True, timeouts=FAST)
        async with link:
            with pytest.raises((PeerTimeout, ProtocolError)):
                await link.import_stock(STICK.busid)


async def test_r09_another_device_in_the_answer(scripted: Scripted) -> None:
    async with scripted(IMPORT_OK + wire.pack_device(KEYBOARD), False) as port:
        link = await dial("127.0.0.1", port, identity=None, plain=True)
        async with link:
            with pytest.raises(IdentityChanged, match=r"asked for device 1-1\.4 and gave 2-3"):
                await link.import_stock(STICK.busid)
            with pytest.raises(RuntimeError, match="the link is over"):
                link.take_socket()


async def test_devlist_of_a_stock_peer(broker: FakeBroker) -> None:
    async with ExporterServer(broker, LOOPBACK, identity=None, plain=True) as server:
        link = await dial(*server.addresses[0], identity=None, plain=True)
        async with link:
            stick, keyboard = await link.devlist()
    assert (stick.busid, stick.devid, stick.name) == ("1-1.4", 1 << 16 | 9, None)
    assert keyboard.interfaces == ((3, 1, 1), (3, 0, 0))


async def test_extensions_need_encryption(broker: FakeBroker) -> None:
    async with ExporterServer(broker, LOOPBACK, identity=None, plain=True) as server:
        link = await dial(*server.addresses[0], identity=None, plain=True)
        async with link:
            with pytest.raises(ConfigError, match="needs an authenticated link"):
                await link.inventory()
            with pytest.raises(ConfigError, match="needs an authenticated link"):
                await link.grant("1-1.4")
            with pytest.raises(ConfigError, match="'stick' is not a bus id"):
                await link.import_stock(BusId("stick"))
