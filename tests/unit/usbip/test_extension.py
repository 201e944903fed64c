# SPDX-License-Identifier: Apache-2.0
"""JSON bodies: round trips, and each wrong field named."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.fakes.broker import KEYBOARD, STICK
from usbdra.errors import ProtocolError
from usbdra.types import ClaimUid
from usbdra.usbip import extension, wire
from usbdra.usbip.errands import Reset, ResetAnswer, can_be_asked
from usbdra.usbip.extension import (
    ClaimRef,
    GrantReply,
    GrantRequest,
    HeldSession,
    Inventory,
    InventoryRequest,
    Refusal,
)

CLAIM = ClaimRef("lab", "stick.one", ClaimUid("2f1c-77"))
REQUEST = GrantRequest("usb-0951-1666-60a44c", CLAIM, "pod lab/reader")


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    "request_",
    [
        REQUEST,
        GrantRequest("1-1.4"),
        replace(REQUEST, holder="é"),
        replace(REQUEST, trace=TRACE),
    ],
)
def test_grant_request_round_trip(request_: GrantRequest) -> None:
    body = extension.pack_grant_request(request_)
    assert len(body) <= wire.MAX_BODY
    assert extension.parse_grant_request(body) == request_


def test_grant_reply_round_trip() -> None:
    reply = GrantReply(STICK, (("authorise", 0.001), ("bind", 0.25)))
    assert extension.parse_grant_reply(extension.pack_grant_reply(reply)) == reply


def test_inventory_round_trip() -> None:
    devices = (STICK, replace(KEYBOARD, available=False, reason="in use by claim lab/one"))
    assert extension.parse_inventory(extension.pack_inventory(devices)) == devices


def test_refusal_round_trip() -> None:
    refusal = Refusal("Busy", "device x is in use by claim lab/one", "claim lab/one")
    assert extension.parse_refusal(extension.pack_refusal(refusal)) == refusal


def test_longest_bodies_fit_their_caps() -> None:
    """Quotes double in JSON, and every list is at its longest."""
    text = '"' * 500
    device = replace(
        STICK,
        serial=text,
        product=text,
        manufacturer=text,
        reason=text,
        interfaces=((255, 255, 255),) * 400,
    )
    timings = (('"' * 64, 1234567.123456),) * 40
    assert len(extension.pack_grant_reply(GrantReply(device, timings))) <= wire.MAX_GRANT_BODY
    assert len(extension.pack_refusal(Refusal("R" * 64, text * 9, text))) <= wire.MAX_BODY
    request = GrantRequest("d" * 63, ClaimRef("n" * 63, "c" * 253, ClaimUid("u" * 64)), text, TRACE)
    assert len(extension.pack_grant_request(request)) <= wire.MAX_BODY


def test_inventory_is_never_cut_in_silence() -> None:
    many = [replace(STICK, interfaces=((255, 255, 255),) * 255)] * 100
    with pytest.raises(ValueError, match="an inventory of 100 devices takes"):
        extension.pack_inventory(many)


def test_texts_of_devices_are_made_safe() -> None:
    device = replace(STICK, product="\x1b[2Jdisk\n", serial="é" * 100)
    (back,) = extension.parse_inventory(extension.pack_inventory([device]))
    assert back.product == "\ufffd[2Jdisk\ufffd"
    assert back.serial == "é" * 64


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"v": 2}, "version 2, not 1"),
        ({"v": True}, "version True, not 1"),
        ({"device": None}, "device is not a text"),
        ({"device": "../etc"}, "'../etc' is neither a device name nor a bus id"),
        ({"device": "a" * 64}, "neither a device name"),
        ({"device": "Stick"}, "neither a device name"),
        ({"claim": []}, "claim is not an object"),
        ({"claim": {"namespace": "lab", "name": "x"}}, "uid is not a text"),
        ({"claim": {"namespace": "a/b", "name": "x", "uid": "u"}}, "claim namespace 'a/b'"),
        ({"holder": 7}, "holder is not a text"),
    ],
)
def test_wrong_grant_request_fields_are_named(change: dict[str, Any], text: str) -> None:
    fields = json.loads(extension.pack_grant_request(REQUEST)) | change
    with pytest.raises(ProtocolError, match=text):
        extension.parse_grant_request(json.dumps(fields).encode())


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"busid": "usb1"}, "busid 'usb1' is not a bus id"),
        ({"busnum": 0}, "busnum is 0"),
        ({"devnum": 1.5}, "devnum is not a whole number"),
        ({"speed": True}, "speed is not a whole number"),
        ({"vendor": "951"}, "vendor '951' is not four hex digits"),
        ({"class": [0, 0]}, "class is not three codes"),
        ({"class": [0, 0, 256]}, "class is 256"),
        ({"interfaces": [[1, 2, 3]] * 256}, "interfaces is not a list of at most 255"),
        ({"interfaces": None}, "interfaces is not a list"),
        ({"available": "yes"}, "available is not true or false"),
        ({"name": "A B"}, "name 'A B' is not a device name"),
        ({"serial": 5}, "serial is not a text"),
    ],
)
def test_wrong_device_fields_are_named(change: dict[str, Any], text: str) -> None:
    fields = json.loads(extension.pack_inventory([STICK]))
    fields["devices"][0] |= change
    with pytest.raises(ProtocolError, match=text):
        extension.parse_inventory(json.dumps(fields).encode())


@pytest.mark.parametrize(
    "timings", [[["a"]], [["a", "b"]], [[1, 1]], [["a", -1]], [["a", 1e999]], [["a", True]], {}]
)
def test_wrong_timings_are_refused(timings: object) -> None:
    fields = json.loads(extension.pack_grant_reply(GrantReply(STICK, ()))) | {"timings": timings}
    with pytest.raises(ProtocolError, match=r"timings|not JSON"):
        extension.parse_grant_reply(json.dumps(fields).encode())


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff", b"[" * 4000, b"{}", b"[]", b"NaN", b'{"v":NaN}', b'{"v":' + b"9" * 5000 + b"}"],
)
def test_what_is_no_body_is_refused(body: bytes) -> None:
    for parse in (
        extension.parse_grant_request,
        extension.parse_grant_reply,
        extension.parse_refusal,
        extension.parse_inventory,
    ):
        with pytest.raises(ProtocolError, match="message body"):
            parse(body)


def test_newer_peers_may_say_more() -> None:
    fields = json.loads(extension.pack_grant_request(REQUEST)) | {"new": [1]}
    assert extension.parse_grant_request(json.dumps(fields).encode()) == REQUEST


def test_peers_that_know_nothing_of_traces() -> None:
    """What they are told where traces are off is what it always was; what they say has none."""
    old = json.loads(extension.pack_grant_request(REQUEST))
    assert set(old) == {"v", "device", "claim", "holder"}
    assert extension.parse_grant_request(json.dumps(old).encode()).trace == ""


@pytest.mark.parametrize("value", [TRACE + "0", TRACE[:-1], "ff" + TRACE[2:], "", None, 7, [TRACE]])
def test_a_malformed_trace_is_none_and_no_reason_to_refuse(value: object) -> None:
    fields = json.loads(extension.pack_grant_request(REQUEST)) | {"traceparent": value}
    assert extension.parse_grant_request(json.dumps(fields).encode()) == REQUEST


RESET = Reset("stick", "2026-01-31T12:00:00.123456Z,force")
ANSWER = ResetAnswer(RESET.word, "Reset", "reset by its host")
SESSION = HeldSession("5e1f", "stick", ClaimRef("lab", "one", ClaimUid("u1")), "node-b")


def test_what_a_controller_and_its_host_tell_each_other() -> None:
    brought = InventoryRequest("CAs\n", "certificate\n", ("5e1f", "5e20"), "2b-7", 60, RESET)
    assert extension.parse_inventory_request(extension.pack_inventory_request(brought)) == brought
    assert extension.pack_inventory_request(InventoryRequest()) == b""
    assert extension.parse_inventory_request(b"") == InventoryRequest()
    told = Inventory((STICK,), "request\n", (SESSION,), "2b-8", ANSWER)
    body = extension.pack_inventory(told.devices, told)
    assert extension.parse_whole_inventory(body) == told
    assert extension.parse_inventory(body) == (STICK,), "what older peers take of it"
    with pytest.raises(ValueError, match="certificates for a host take"):
        extension.pack_inventory_request(InventoryRequest("x" * 5000))


@pytest.mark.parametrize(
    ("field", "value"), [("device", "Stick"), ("word", "soon enough"), ("word", None)]
)
def test_a_reset_of_odd_form_is_refused(field: str, value: object) -> None:
    fields = json.loads(extension.pack_inventory_request(InventoryRequest(reset=RESET)))
    fields["reset"][field] = value
    with pytest.raises(ProtocolError, match=field):
        extension.parse_inventory_request(json.dumps(fields).encode())


def test_what_may_be_asked_is_what_is_understood() -> None:
    assert can_be_asked(RESET)
    assert not can_be_asked(Reset("stick", "2026-01-31 12:00:00Z"))
    assert not can_be_asked(Reset("Stick", RESET.word))


@pytest.mark.parametrize(("field", "value"), [("reason", "no word"), ("text", 1)])
def test_an_answer_of_odd_form_is_refused(field: str, value: object) -> None:
    fields = json.loads(extension.pack_inventory([], Inventory(reset=ANSWER)))
    fields["reset"][field] = value
    with pytest.raises(ProtocolError, match=field):
        extension.parse_whole_inventory(json.dumps(fields).encode())


@pytest.mark.parametrize(("field", "value"), [("wait", 301), ("wait", -1), ("seen", "a b")])
def test_a_wait_of_odd_form_is_refused(field: str, value: object) -> None:
    fields = json.loads(extension.pack_inventory_request(InventoryRequest(seen="2b-7", wait=60)))
    with pytest.raises(ProtocolError, match=field):
        extension.parse_inventory_request(json.dumps(fields | {field: value}).encode())


@pytest.mark.parametrize(
    ("field", "value"),
    [("session", "a b"), ("device", "Stick"), ("node", "outside/pi"), ("claim", None), ("node", 1)],
)
def test_a_session_of_odd_form_is_refused(field: str, value: object) -> None:
    fields = json.loads(extension.pack_inventory([], Inventory(sessions=(SESSION,))))
    fields["sessions"][0][field] = value
    with pytest.raises(ProtocolError, match=field):
        extension.parse_whole_inventory(json.dumps(fields).encode())
