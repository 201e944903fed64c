# SPDX-License-Identifier: Apache-2.0
"""Layouts against bytes written down from the kernel's documentation (tests/data/wire)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.broker import KEYBOARD, STICK
from usbdra.errors import ProtocolError
from usbdra.types import RemoteDevice
from usbdra.usbip import wire

DATA = Path(__file__).parents[2] / "data" / "wire"


def sample(name: str) -> bytes:
    """Bytes of a .hex file: hex digits, `#` comments and blanks."""
    lines = (DATA / f"{name}.hex").read_text().splitlines()
    return bytes.fromhex("".join(line.partition("#")[0] for line in lines))


def stock(device: RemoteDevice) -> RemoteDevice:
    """What is left of a device in the stock layout."""
    return replace(device, name=None, serial=None, product=None, manufacturer=None, interfaces=())


def test_devlist_reply_is_the_documented_one() -> None:
    assert wire.pack_devlist([STICK]) == sample("devlist_reply")


def test_import_reply_is_the_documented_one() -> None:
    reply = sample("import_reply")
    assert wire.pack_header(wire.OP_REP_IMPORT) + wire.pack_device(STICK) == reply
    assert wire.parse_device(memoryview(reply)[8:]) == (stock(STICK), 1)


def test_import_request_is_the_documented_one() -> None:
    request = sample("import_request")
    assert wire.pack_header(wire.OP_REQ_IMPORT) + wire.pack_busid("1-1.4") == request
    assert wire.parse_header(request[:8]) == (0x0111, 0x8003, 0)
    assert wire.parse_busid(request[8:]) == "1-1.4"


def test_interfaces_round_trip() -> None:
    packed = wire.pack_interfaces(KEYBOARD)
    assert packed == bytes.fromhex("0301010003000000")
    assert wire.parse_interfaces(packed) == KEYBOARD.interfaces


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("1-1", True),
        ("12-3.4.1.2.7", True),
        ("usb1", False),
        ("1-1:1.0", False),
        ("1-0", False),
        ("../1-1", False),
        ("1-1\n", False),
        ("1-1.", False),
        ("", False),
        ("1-" + "1." * 15 + "1", False),
        ("\N{ARABIC-INDIC DIGIT ONE}-1", False),
    ],
)
def test_bus_ids(text: str, good: bool) -> None:
    assert wire.is_busid(text) is good
    if not good:
        with pytest.raises(ValueError, match="not a bus id"):
            wire.pack_busid(text)


@pytest.mark.parametrize(
    ("offset", "value", "text"),
    [
        (256, b"\xff\xfe", r"busid '\\xff\\xfe"),
        (288, b"\0\0\0\0", "busnum is 0"),
        (288, b"\0\1\0\0", "busnum is 65536"),
        (292, b"\xff\xff\xff\xff", "devnum is 4294967295"),
        (296, b"\0\0\0\7", "speed is 7"),
    ],
)
def test_lying_fields_are_named(offset: int, value: bytes, text: str) -> None:
    record = bytearray(wire.pack_device(STICK))
    record[offset : offset + len(value)] = value
    with pytest.raises(ProtocolError, match=text.replace("\\\\", "\\\\\\\\")):
        wire.parse_device(bytes(record))


def test_counts_are_capped() -> None:
    assert wire.parse_u32(b"\0\0\4\0", "device count", wire.MAX_DEVICES) == 1024
    with pytest.raises(ProtocolError, match="device count is 1025; at most 1024"):
        wire.parse_u32(b"\0\0\4\1", "device count", wire.MAX_DEVICES)
    with pytest.raises(ValueError, match="1025 devices do not fit"):
        wire.pack_devlist([STICK] * 1025)
