# SPDX-License-Identifier: Apache-2.0
"""Messages and handshakes: 128 devices packed and parsed, TLS in memory, a grant's round trip."""

from __future__ import annotations

import json
import ssl
from dataclasses import replace
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tests.fakes.broker import STICK
from tests.fakes.certificates import certificates
from usbdra.transport.ktls import Role
from usbdra.types import BusId, ClaimUid, DeviceName
from usbdra.usbip import extension, session, wire
from usbdra.usbip.extension import ClaimRef, GrantReply, GrantRequest

DEVICES = [
    replace(STICK, busid=BusId(f"1-{i}"), devnum=i, name=DeviceName(f"usb-stick-{i}"))
    for i in range(1, 129)
]
REQUEST = GrantRequest("usb-stick-7", ClaimRef("lab", "one", ClaimUid("2f1c")), "pod lab/one")


def read(reading: session.Reading[Any], data: bytes) -> Any:
    """Feed a reader exactly what it asks for, as the sockets do."""
    at = 0
    while needed := reading.bytes_needed:
        reading.feed(data[at : at + needed])
        at += needed
    return reading.result


@pytest.mark.benchmark(group="list of 128 devices, packed and parsed")
def test_plain_json_of_the_inventory(benchmark: BenchmarkFixture) -> None:
    """The encoder and the decoder of the same body, without a check of anything in it."""
    benchmark.extra_info["role"] = "yardstick"
    body = json.loads(extension.pack_inventory(DEVICES))
    assert benchmark(lambda: json.loads(json.dumps(body))) == body


@pytest.mark.benchmark(group="list of 128 devices, packed and parsed")
def test_devlist_of_128(benchmark: BenchmarkFixture) -> None:
    def round_trip() -> Any:
        return read(session.request_devlist()[1], wire.pack_devlist(DEVICES))

    assert len(benchmark(round_trip).value) == 128


@pytest.mark.benchmark(group="list of 128 devices, packed and parsed")
def test_inventory_of_128(benchmark: BenchmarkFixture) -> None:
    def round_trip() -> Any:
        return extension.parse_inventory(extension.pack_inventory(DEVICES))

    assert len(benchmark(round_trip)) == 128


@pytest.mark.benchmark(group="conversations in memory")
def test_grant_conversation(benchmark: BenchmarkFixture) -> None:
    def round_trip() -> Any:
        server = session.ServerSession(extensions=True)
        message, reply = session.request_grant(REQUEST)
        at = 0
        while needed := server.bytes_needed:
            server.feed(message[at : at + needed])
            at += needed
        return read(reply, server.reply_granted(GrantReply(DEVICES[6], (("bind", 0.1),))))

    assert benchmark(round_trip).value.device == DEVICES[6]


@pytest.mark.benchmark(group="conversations in memory")
def test_tls_handshake_in_memory(benchmark: BenchmarkFixture) -> None:
    """Both ends' share of the CPU, key log included."""
    a, b = certificates().identity("a"), certificates().identity("b")

    def handshake() -> bytearray:
        server_context, client_context = a.context(Role.SERVER), b.context(Role.CLIENT)
        up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = server_context.ssl.wrap_bio(up, down, server_side=True)
        client = client_context.ssl.wrap_bio(down, up)
        for end in (client, server, client, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
        server_context.take_log()
        return client_context.take_log()

    assert b"CLIENT_TRAFFIC_SECRET_0" in benchmark(handshake)
