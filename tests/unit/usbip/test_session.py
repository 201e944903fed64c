# SPDX-License-Identifier: Apache-2.0
"""Conversations byte by byte: nothing is read beyond a message, whatever the bytes are."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.broker import KEYBOARD, STICK
from tests.searching import examples
from usbdra.errors import ProtocolError
from usbdra.usbip import session, wire
from usbdra.usbip.extension import (
    ClaimRef,
    GrantReply,
    GrantRequest,
    InventoryRequest,
    Refusal,
)
from usbdra.usbip.session import (
    Answer,
    BadRequest,
    DevlistRequest,
    ImportRequest,
    Reading,
    ServerSession,
)
from usbdra.usbip.wire import Status

REFUSAL = Refusal("Busy", "device is in use", "claim lab/one")
REQUEST = GrantRequest("1-1.4", ClaimRef("lab", "one", "u1"), "pod")  # type: ignore[arg-type]
VISIT = InventoryRequest("PEM of CAs", "PEM of a certificate", ("key-1",))
CONVERSATIONS = {
    "devlist": (session.request_devlist(), DevlistRequest()),
    "inventory": (session.request_inventory(), InventoryRequest()),
    "visit": (session.request_visit(VISIT), VISIT),
    "import": (session.request_import("1-1.4"), ImportRequest(STICK.busid)),
    "grant": (session.request_grant(REQUEST), REQUEST),
}


def feed(target: ServerSession | Reading[Any], data: bytes, step: int) -> tuple[Any, bytes]:
    """Feed at most `step` bytes at a time, as asked for; returns the last event and the rest."""
    event = None
    while event is None and target.bytes_needed and data:
        size = min(step, target.bytes_needed, len(data))
        event = target.feed(data[:size])
        data = data[size:]
    return event, data


def fresh(kind: str) -> tuple[bytes, Reading[Any]]:
    if kind == "import":
        return session.request_import("1-1.4")
    if kind == "grant":
        return session.request_grant(REQUEST)
    return session.request_devlist() if kind == "devlist" else session.request_inventory()


@pytest.mark.parametrize("step", [1, 7, 10000])
@pytest.mark.parametrize("kind", CONVERSATIONS)
def test_requests_in_any_pieces(kind: str, step: int) -> None:
    (message, _), expected = CONVERSATIONS[kind]
    server = ServerSession(extensions=True)
    assert feed(server, message + b"kernel", step) == (expected, b"kernel")
    assert server.bytes_needed == 0
    with pytest.raises(RuntimeError, match="fed in phase reply"):
        server.feed(b"x")


@pytest.mark.parametrize("step", [1, 7, 10000])
def test_replies_in_any_pieces(step: int) -> None:
    for kind in CONVERSATIONS:
        server = ServerSession(extensions=True)
        message, reply = fresh(kind)
        asked, _ = feed(server, message, 10000)
        if isinstance(asked, DevlistRequest | InventoryRequest):
            answer = server.reply_devices([STICK, KEYBOARD])
        else:
            answer = server.reply_granted(GrantReply(STICK, (("bind", 0.5),)))
            assert server.handed_over
            assert server.bytes_needed == 0
        _, rest = feed(reply, answer + b"kernel", step)
        assert rest == b"kernel"
        value: Any = reply.result.value
        if kind == "grant":
            assert value == GrantReply(STICK, (("bind", 0.5),))
        elif kind == "import":
            assert (value.busid, value.devid, value.name) == ("1-1.4", 0x10009, None)
        else:
            assert [one.interfaces for one in value] == [STICK.interfaces, KEYBOARD.interfaces]


@pytest.mark.parametrize("kind", CONVERSATIONS)
def test_refusals(kind: str) -> None:
    message, reply = fresh(kind)
    server = ServerSession(extensions=True)
    feed(server, message, 10000)
    feed(reply, server.reply_refused(Status.BUSY, REFUSAL), 10000)
    told = REFUSAL if kind in {"inventory", "visit", "grant"} else None
    assert reply.result == Answer(Status.BUSY, None, told)
    assert server.at_boundary  # the next request may follow


def test_one_reply_for_each_request() -> None:
    server = ServerSession(extensions=False)
    with pytest.raises(RuntimeError, match="no such reply is due"):
        server.reply_devices([])
    feed(server, session.request_import("1-1.4")[0], 100)
    with pytest.raises(RuntimeError, match="no such reply is due"):
        server.reply_devices([])
    server.reply_granted(GrantReply(STICK, ()))
    with pytest.raises(RuntimeError, match="no such reply is due"):
        server.reply_refused(Status.ERROR, REFUSAL)


def test_more_than_needed_is_misuse() -> None:
    server = ServerSession(extensions=False)
    with pytest.raises(ValueError, match="9 bytes fed, 8 needed"):
        server.feed(bytes(9))
    reading = session.request_devlist()[1]
    with pytest.raises(RuntimeError, match="incomplete: 8 bytes missing"):
        _ = reading.result


@pytest.mark.parametrize(
    ("message", "text", "reply"),
    [
        ("0106800500000000", "version 0x0106, not 0x0111", "0111000500000005"),
        ("0111123400000000", "unknown request code 0x1234", "0111123400000005"),
        ("0111800300000000" + "00" * 32, "busid '' is not a bus id", "0111000300000005"),
    ],
)
def test_bad_requests_are_named_and_answered(message: str, text: str, reply: str) -> None:
    server = ServerSession(extensions=True)
    with pytest.raises(BadRequest, match=text) as caught:
        feed(server, bytes.fromhex(message), 100)
    assert caught.value.reply.hex() == reply
    with pytest.raises(RuntimeError, match="fed in phase closed"):
        server.feed(b"")


def test_lying_length_costs_nothing() -> None:
    """4 GiB announced: refused before a byte of it is awaited."""
    server = ServerSession(extensions=True)
    with pytest.raises(BadRequest, match="body length is 4294967295; at most 4096"):
        feed(server, bytes.fromhex("01118f0200000000ffffffff"), 100)
    for kind, code in (("inventory", 0x0F01), ("devlist", 0x0005)):
        with pytest.raises(ProtocolError, match="is 4294967295; at most"):
            feed(fresh(kind)[1], wire.pack_header(code) + b"\xff" * 4, 100)


def test_extensions_stay_off_plain_links() -> None:
    server = ServerSession(extensions=False)
    with pytest.raises(BadRequest, match="unknown request code 0x8f02"):
        feed(server, session.request_grant(REQUEST)[0], 1000)


PREFIXES = st.sampled_from(
    [
        b"",
        *(message for (message, _), _ in CONVERSATIONS.values()),
        *(wire.pack_header(code) for code in (0x8F01, 0x8F02, 0x8003)),
        wire.pack_header(wire.OP_REP_DEVLIST) + wire.pack_u32(3),
        wire.pack_header(wire.OP_REP_IMPORT) + wire.pack_device(STICK),
        wire.pack_header(wire.OP_REP_GRANT) + wire.pack_u32(64),
        wire.pack_header(wire.OP_REP_INVENTORY, 2) + wire.pack_u32(64),
    ]
)


@given(prefix=PREFIXES, data=st.binary(max_size=600), step=st.integers(1, 400))
@settings(max_examples=examples(200))
def test_fuzz_any_bytes_end_in_a_message_or_one_error(
    prefix: bytes, data: bytes, step: int
) -> None:
    targets: list[Any] = [ServerSession(extensions=True), ServerSession(extensions=False)]
    targets += [request[1] for request in map(fresh, CONVERSATIONS)]
    for target in targets:
        with contextlib.suppress(ProtocolError):
            feed(target, prefix + data, step)
        assert target.bytes_needed <= wire.MAX_INVENTORY_BODY
