# SPDX-License-Identifier: Apache-2.0
"""Messages between exporter and agent: there and back, and what is refused of any bytes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.broker import KEYBOARD, STICK
from tests.searching import examples
from usbdra.errors import DeviceBusy, ProtocolError
from usbdra.exporter import messages
from usbdra.exporter.broker import ClaimRef, Granted, GrantRequest, Peer
from usbdra.exporter.messages import Kind, Pems
from usbdra.exporter.refusals import RefusedByAgent, refusal_of
from usbdra.types import ClaimUid, NodeName
from usbdra.usbip.extension import Refusal
from usbdra.usbip.wire import Status

PEER = Peer("10.0.0.2", 4242, NodeName("node-b.lab"), True, "uid-1")
REQUEST = GrantRequest("usb-stick", ClaimRef("lab", "one", ClaimUid("2f1c")), "pod lab/one")
GRANTED = Granted("5f3a", STICK, (("authorise", 0.25), ("bind", 0.5)))
PEMS = Pems("1", "CERT", "KEY", "CA")
PARSERS: tuple[Callable[[bytes], Any], ...] = (
    messages.parse_peer,
    messages.parse_acquire,
    messages.parse_granted,
    messages.parse_session,
    messages.parse_hand_over,
    messages.parse_refused,
    messages.parse_devices,
    messages.parse_have,
    messages.parse_pems,
)


def test_there_and_back() -> None:
    assert messages.parse_peer(messages.pack_inventory(PEER)) == PEER
    plain = Peer("fe80::1%eth0", 1)
    assert messages.parse_acquire(messages.pack_acquire(REQUEST, plain)) == (REQUEST, plain)
    assert messages.parse_granted(messages.pack_granted(GRANTED)) == GRANTED
    assert messages.parse_session(messages.pack_session("5f3a")) == "5f3a"
    assert messages.parse_devices(messages.pack_devices([STICK, KEYBOARD])) == (STICK, KEYBOARD)
    assert messages.parse_have(messages.pack_have("")) == ""
    assert messages.parse_pems(messages.pack_pems(PEMS)) == PEMS


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_trace_goes_along_and_a_malformed_one_is_none() -> None:
    traced = replace(REQUEST, trace=TRACE)
    assert messages.parse_acquire(messages.pack_acquire(traced, PEER)) == (traced, PEER)
    assert messages.parse_hand_over(messages.pack_session("5f3a", TRACE)) == ("5f3a", TRACE)
    assert messages.parse_hand_over(messages.pack_session("5f3a")) == ("5f3a", "")
    for junk in (TRACE + "0", TRACE[:-1], TRACE.upper()):
        assert messages.parse_hand_over(messages.pack_session("5f3a", junk)) == ("5f3a", "")
        body = messages.pack_acquire(replace(REQUEST, trace=junk), PEER)
        assert messages.parse_acquire(body) == (REQUEST, PEER)


def test_every_request_has_its_reply() -> None:
    assert set(messages.REPLIES) == {kind for kind in Kind if kind < 64}


def test_a_refusal_reads_the_same_behind_the_exporter() -> None:
    status, refusal = refusal_of(DeviceBusy("usb-stick", "claim lab/one"))
    body = messages.pack_refused(status, refusal)
    assert messages.parse_refused(body) == (Status.BUSY, refusal)
    told = RefusedByAgent(*messages.parse_refused(body))
    assert refusal_of(told) == (status, Refusal("Busy", str(told), "claim lab/one"))


def test_the_longest_request_fits() -> None:
    claim = ClaimRef("n" * 63, "c" * 253, ClaimUid("u" * 64))
    request = GrantRequest("d" * 63, claim, "\N{SNOWMAN}" * 40, TRACE)
    peer = Peer("f" * 64, 65535, NodeName("n" * 253), True)
    assert len(messages.pack_acquire(request, peer)) <= messages.MAX_REQUEST


def test_keys_are_in_no_repr() -> None:
    assert "KEY" not in repr(PEMS)


@pytest.mark.parametrize(
    ("parse", "good", "changes", "error"),
    [
        (messages.parse_peer, "peer", {"peer": None}, "peer is not an object"),
        (messages.parse_peer, "peer", {"peer.node": "../a"}, "peer node '../a' is malformed"),
        (messages.parse_peer, "peer", {"peer.node": 7}, "peer node '7' is malformed"),
        (messages.parse_peer, "peer", {"peer.port": 65536}, "peer port"),
        (messages.parse_peer, "peer", {"peer.port": True}, "peer port"),
        (messages.parse_peer, "peer", {"peer.encrypted": "yes"}, "encrypted"),
        (messages.parse_peer, "peer", {"peer.address": "a" * 65}, "at most 64"),
        (messages.parse_session, "session", {"session": ""}, "no session's key"),
        (messages.parse_session, "session", {"session": "../x"}, "no session's key"),
        (messages.parse_refused, "refused", {"status": 0}, "status is none"),
        (messages.parse_refused, "refused", {"status": True}, "status is none"),
        (messages.parse_refused, "refused", {"status": 6}, "status is none"),
        (messages.parse_pems, "pems", {"key": "k" * 65537}, "key is not a text of at most 65536"),
        (messages.parse_have, "have", {"have": 1}, "have is not a text"),
        (messages.parse_have, "have", {"v": 2}, "version 2"),
    ],
)
def test_bad_fields_are_named(
    parse: Callable[[bytes], Any], good: str, changes: dict[str, Any], error: str
) -> None:
    bodies = {
        "peer": messages.pack_inventory(PEER),
        "session": messages.pack_session("a"),
        "refused": messages.pack_refused(Status.BUSY, Refusal("Busy", "no")),
        "pems": messages.pack_pems(PEMS),
        "have": messages.pack_have(""),
    }
    fields = json.loads(bodies[good])
    parse(json.dumps(fields).encode())
    for place, value in changes.items():
        outer, _, inner = place.partition(".")
        (fields[outer] if inner else fields)[inner or outer] = value
    with pytest.raises(ProtocolError, match=error):
        parse(json.dumps(fields).encode())


@given(st.binary(max_size=200))
@settings(max_examples=examples(200))
def test_any_bytes(body: bytes) -> None:
    for parse in PARSERS:
        with contextlib.suppress(ProtocolError):
            parse(body)


@given(st.text(max_size=70), st.integers(-1, 70000), st.text(max_size=70))
@settings(max_examples=examples(200))
def test_what_is_accepted_can_be_said_again(address: str, port: int, node: str) -> None:
    fields = {"address": address, "port": port, "node": node, "encrypted": False}
    try:
        peer = messages.parse_peer(json.dumps({"v": 1, "peer": fields}).encode())
    except ProtocolError:
        return
    assert messages.parse_peer(messages.pack_inventory(peer)) == peer
