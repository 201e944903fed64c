# SPDX-License-Identifier: Apache-2.0
"""The listener on loopback: what peers get, whatever they send, and what is left afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.fakes.broker import KEYBOARD, STICK, FakeBroker
from tests.waiting import until
from usbdra.errors import ConfigError, DeviceBusy, ExportFailed, HostInUse, NotFound, Refused
from usbdra.exporter.policy import AccessPolicy, parse_networks
from usbdra.exporter.server import ExporterServer, Listen, ServerLimits
from usbdra.transport.sockets import LinkTimeouts
from usbdra.usbip import wire

FAST = LinkTimeouts(handshake=0.3, request=0.3)
LOOPBACK = Listen(addresses=("127.0.0.1",), port=0)
DEVLIST = bytes.fromhex("0111800500000000")
IMPORT = bytes.fromhex("0111800300000000") + b"1-1.4".ljust(32, b"\0")


@contextlib.asynccontextmanager
async def serving(broker: FakeBroker, **options: Any) -> AsyncIterator[ExporterServer]:
    options.setdefault("timeouts", FAST)
    async with ExporterServer(broker, LOOPBACK, identity=None, plain=True, **options) as server:
        yield server


async def ask(
    server: ExporterServer, message: bytes, source: str = "127.0.0.1", *, eof: bool = True
) -> bytes:
    """Send, say that this was all (unless `eof` is False), read to the end of the stream."""
    reader, writer = await asyncio.open_connection(*server.addresses[0], local_addr=(source, 0))
    try:
        # The listener may have closed by now, which is an answer too.
        with contextlib.suppress(OSError):
            writer.write(message)
            if eof:
                writer.write_eof()
            return await reader.read()
        return b"reset"
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_devlist_then_silence(broker: FakeBroker) -> None:
    async with serving(broker) as server:
        reply = await ask(server, DEVLIST, eof=False)
    assert server.stats.failed == 0
    assert reply == wire.pack_devlist([STICK, KEYBOARD])
    assert reply[:12] == bytes.fromhex("011100050000000000000002")
    assert len(reply) == 12 + 312 + 4 + 312 + 8


async def test_import_hands_over_then_replies(broker: FakeBroker) -> None:
    async with serving(broker) as server:
        with socket.create_connection(server.addresses[0]) as client:
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(client, IMPORT + b"for the kernel")
            reply = b""
            while len(reply) < 320:
                reply += await loop.sock_recv(client, 320 - len(reply))
            assert reply == wire.pack_header(wire.OP_REP_IMPORT) + wire.pack_device(STICK)
            assert broker.calls == ["acquire", "hand_over"]
            kernel = broker.sessions["s1"]
            # Not a byte beyond the request was taken, and the listener has left the stream.
            assert await loop.sock_recv(kernel, 100) == b"for the kernel"
            await loop.sock_sendall(kernel, b"urb")
            assert await loop.sock_recv(client, 100) == b"urb"
            assert kernel.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
            assert kernel.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 12000
    assert server.stats.granted == 1
    assert broker.calls == ["acquire", "hand_over"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Refused("no"), 1),
        (HostInUse("1-1.4", "mounted at /"), 1),
        (DeviceBusy("stick", "claim lab/one"), 2),
        (ExportFailed("no driver"), 3),
        (NotFound("gone"), 4),
        (ConfigError("odd"), 5),
    ],
)
async def test_r09_refusals_have_a_status(
    broker: FakeBroker, error: Exception, status: int
) -> None:
    broker.fail_acquire = error
    async with serving(broker) as server:
        assert await ask(server, IMPORT) == bytes((1, 0x11, 0, 3, 0, 0, 0, status))
    assert broker.calls == ["acquire"]


async def test_r30_second_client_is_told_at_once(broker: FakeBroker) -> None:
    async with serving(broker) as server:
        with socket.create_connection(server.addresses[0]) as first:
            first.sendall(IMPORT)
            assert len(await asyncio.to_thread(first.recv, 320, socket.MSG_WAITALL)) == 320
            assert await ask(server, IMPORT) == bytes.fromhex("0111000300000002")


async def test_failed_hand_over_gives_the_device_back(broker: FakeBroker) -> None:
    broker.fail_hand_over = ExportFailed("status stayed 1")
    async with serving(broker) as server:
        assert await ask(server, IMPORT) == bytes.fromhex("0111000300000003")
    assert broker.calls == ["acquire", "hand_over", "abandon"]
    assert broker.holders == {}


async def test_slow_bind_is_given_up(broker: FakeBroker) -> None:
    broker.delay = 60
    async with serving(broker, limits=ServerLimits(serve=0.05)) as server:
        assert await ask(server, IMPORT) == bytes.fromhex("0111000300000003")
    assert broker.holders == {}


async def test_peer_that_left_before_the_reply(broker: FakeBroker) -> None:
    """A reset connection: the reply fails, the device goes back."""
    broker.delay = 0.05
    async with serving(broker) as server:
        client = socket.create_connection(server.addresses[0])
        client.sendall(IMPORT)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        await until(lambda: broker.calls == ["acquire"])
        client.close()
        await until(lambda: "abandon" in broker.calls)
    assert broker.holders == {}
    assert server.stats.granted == 0


async def test_shutdown_while_binding_leaves_nothing(broker: FakeBroker) -> None:
    broker.delay = 60
    async with serving(broker) as server:
        with socket.create_connection(server.addresses[0]) as client:
            client.sendall(IMPORT)
            await until(lambda: broker.calls == ["acquire"])
            await server.close()
    assert broker.holders == {}


@pytest.mark.parametrize(
    ("message", "reply"),
    [
        ("", ""),  # silence
        ("0111", ""),  # half a header, then silence
        ("01118003000000003131", ""),  # half a busid
        ("0100800500000000", "0111000500000005"),  # another version
        ("1603010200010001", "0111030100000005"[:4]),  # TLS on a plain port
        ("0111777700000000", "0111777700000005"),  # unknown code
        ("01118f0200000000", "01110f0200000005"),  # ours, on a plain link
        ("0111000500000000", "0111000500000005"),  # a reply, not a request
        ("0111800300000000" + "ff" * 32, "0111000300000005"),  # no bus id
        ("0111800300000000" + "2e2e2f".ljust(64, "0"), "0111000300000005"),  # ../
    ],
)
async def test_bad_input_is_answered_or_closed(
    broker: FakeBroker, message: str, reply: str
) -> None:
    async with serving(broker) as server:
        got = await ask(server, bytes.fromhex(message), eof=False)
        if reply:
            assert got.hex().startswith(reply)
        else:  # reset when the deadline was over before the message came
            assert got in (b"", b"reset")
        assert await ask(server, DEVLIST) == wire.pack_devlist([STICK, KEYBOARD])
    assert broker.calls == []


async def test_drip_feed_is_cut_at_the_deadline(broker: FakeBroker) -> None:
    async with serving(broker) as server:
        _reader, writer = await asyncio.open_connection(*server.addresses[0])
        with contextlib.suppress(ConnectionError):
            for byte in IMPORT:
                writer.write(bytes((byte,)))
                await writer.drain()
                await asyncio.sleep(0.02)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    assert broker.calls == []


async def test_requests_per_connection_are_bounded(broker: FakeBroker) -> None:
    async with serving(broker, limits=ServerLimits(requests=3)) as server:
        reply = await ask(server, DEVLIST * 3)
    assert reply == wire.pack_devlist([STICK, KEYBOARD]) * 3


async def test_thousand_silent_connections(broker: FakeBroker) -> None:
    """They cost a bounded number of tasks; a peer from elsewhere is served all the while."""
    limits = ServerLimits(connections=64, per_address=32)
    timeouts = LinkTimeouts(request=30)
    async with serving(broker, limits=limits, timeouts=timeouts) as server:
        with contextlib.ExitStack() as stack:
            for number in range(1, 1001):
                client = stack.enter_context(socket.socket())
                client.setblocking(False)
                client.connect_ex(server.addresses[0])
                # A full backlog would have the kernel try again a second later.
                await until(lambda least: server.stats.accepted >= least, number - 100)
            await until(lambda: server.stats.accepted == 1000)
            assert server.stats.over_limit == 968
            reply = await ask(server, DEVLIST, source="127.0.0.2")
            assert reply == wire.pack_devlist([STICK, KEYBOARD])
        await until(lambda: server.open_connections == 0)
        assert await ask(server, DEVLIST) == reply


async def test_total_of_connections_is_bounded(broker: FakeBroker) -> None:
    """A newcomer displaces a silent one, and no one who is being served."""
    broker.delay = 60
    limits = ServerLimits(connections=2)
    async with serving(broker, limits=limits, timeouts=LinkTimeouts()) as server:
        with (
            socket.create_connection(server.addresses[0]) as silent,
            socket.create_connection(server.addresses[0], source_address=("127.0.0.2", 0)) as one,
            socket.create_connection(server.addresses[0], source_address=("127.0.0.3", 0)) as two,
        ):
            one.sendall(IMPORT)
            two.sendall(IMPORT)
            await until(lambda: broker.calls == ["acquire"] * 2)
            assert await asyncio.to_thread(silent.recv, 1) == b""
            assert server.open_connections == 2
            assert await ask(server, DEVLIST, source="127.0.0.4") in (b"", b"reset")
            assert server.stats.over_limit == 2


async def test_networks_and_nodes(broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "usbdra")
    policy = AccessPolicy(networks=parse_networks(("127.0.0.2/32",)))
    async with serving(broker, policy=policy) as server:
        assert await ask(server, DEVLIST) in (b"", b"reset")
        assert len(await ask(server, DEVLIST, source="127.0.0.2")) > 8
        assert server.stats.refused_networks == 1
    assert "127.0.0.1 is in none of the allowed networks" in caplog.text
    async with serving(broker, policy=AccessPolicy(nodes=frozenset())) as server:
        assert await ask(server, DEVLIST) == bytes.fromhex("0111000500000001")
        assert await ask(server, IMPORT) == bytes.fromhex("0111000300000001")
    assert broker.calls == []


async def test_devices_kept_from_a_peer_are_not_there(broker: FakeBroker) -> None:
    policy = AccessPolicy(devices={"usb-0951-1666-60a44c": frozenset()})
    async with serving(broker, policy=policy) as server:
        assert await ask(server, DEVLIST) == wire.pack_devlist([KEYBOARD])
        assert await ask(server, IMPORT) == bytes.fromhex("0111000300000004")
    assert broker.calls == []


async def test_one_log_line_for_each_decision(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "usbdra")
    async with serving(broker) as server:
        await ask(server, DEVLIST)
        broker.fail_acquire = Refused("not today")
        await ask(server, IMPORT)
    listed, refused = (one for one in caplog.records if one.name.startswith("usbdra.exporter"))
    assert listed.getMessage() == "devices listed"
    assert listed.__dict__["devices"] == 2
    assert refused.getMessage() == "request refused: not today"
    assert refused.__dict__["device"] == "1-1.4"
    assert refused.__dict__["peer"].startswith("unauthenticated at 127.0.0.1:")


def test_plain_is_a_choice(broker: FakeBroker) -> None:
    with pytest.raises(ConfigError, match="plain mode on purpose"):
        ExporterServer(broker, LOOPBACK, identity=None)


async def test_address_in_use_is_named(broker: FakeBroker) -> None:
    async with serving(broker) as server:
        port = server.addresses[0][1]
        taken = Listen(addresses=("127.0.0.1",), port=port)
        with pytest.raises(ConfigError, match=f"127.0.0.1 port {port}: Address already in use"):
            await ExporterServer(broker, taken, identity=None, plain=True).start()


async def test_both_families_on_one_port(broker: FakeBroker) -> None:
    listen = Listen(addresses=("127.0.0.1", "::1"), port=0)
    async with ExporterServer(broker, listen, identity=None, plain=True) as server:
        (_, port4), (host6, port6) = server.addresses
        assert (host6, port6) == ("::1", port4)
        reader, writer = await asyncio.open_connection("::1", port6)
        writer.write(DEVLIST)
        assert (await reader.readexactly(12))[-1] == 2
        writer.close()
        await writer.wait_closed()


async def test_old_and_new_process_overlap(broker: FakeBroker) -> None:
    listen = Listen(addresses=("127.0.0.1",), port=0, reuse_port=True)
    async with ExporterServer(broker, listen, identity=None, plain=True) as old:
        port = old.addresses[0][1]
        again = Listen(addresses=("127.0.0.1",), port=port, reuse_port=True)
        async with ExporterServer(broker, again, identity=None, plain=True) as new:
            assert new.addresses == old.addresses


async def test_a_full_queue_leaves_the_loop_to_those_who_are_served(broker: FakeBroker) -> None:
    async with serving(broker) as server:
        with contextlib.ExitStack() as stack:
            for _ in range(60):
                stack.enter_context(socket.create_connection(server.addresses[0]))
            for turn in range(1, 41):
                await asyncio.sleep(0)
                assert server.stats.accepted <= turn, "one a turn, however many wait"
            assert server.stats.accepted > 30
