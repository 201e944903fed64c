# SPDX-License-Identifier: Apache-2.0
"""vhci status texts in plain Python: the reference the C parser is compared with.

Says what the rows mean in the shortest honest way. Must not import the parser it checks.
"""

from __future__ import annotations

import re
from typing import NamedTuple

HUBS = {b"hs": 1, b"ss": 2}
MAX_PORTS = 4096
U32 = 2**32 - 1
U64 = 2**64 - 1

HEADER = re.compile(
    rb"(?P<hub>hub )?(?:port|prt) sta spd (?P<bus>bus )?dev (?P<socket>sockfd|socket) local_busid"
)
BUSID = re.compile(rb"[0-9][0-9.-]{0,30}")
DECIMAL = re.compile(rb"[0-9]+")
HEX = re.compile(rb"[0-9a-fA-F]+")


class Row(NamedTuple):
    """One port, field by field as `usbdra._native.vhci.Row`."""

    port: int
    controller: int
    hub: int
    state: int
    speed: int
    devid: int
    sockfd: int
    local_busid: bytes


class Malformed(ValueError):
    """The text is of no known shape."""


def decimal(word: bytes, limit: int = U32) -> int:
    if not DECIMAL.fullmatch(word) or int(word) > limit:
        raise Malformed(word)
    return int(word)


def hexadecimal(word: bytes, limit: int) -> int:
    if not HEX.fullmatch(word) or int(word, 16) > limit:
        raise Malformed(word)
    return int(word, 16)


def device(words: list[bytes]) -> int:
    if len(words) == 1:
        return hexadecimal(words[0], U32)
    bus, number = (decimal(word, 0xFFFF) for word in words)
    return bus << 16 | number


def socket(word: bytes, column: bytes) -> int:
    if column == b"sockfd":
        number = decimal(word)
        return -1 if number == U32 else number
    return -1 if word == b"(null)" else hexadecimal(word, U64)


def busid(word: bytes) -> bytes:
    if word in (b"0-0", b"(null)"):
        return b""
    if not BUSID.fullmatch(word):
        raise Malformed(word)
    return word


def parse_text(text: bytes, controller: int) -> list[Row]:
    header, *lines = text.split(b"\n")
    shape = HEADER.fullmatch(b" ".join(header.split()))
    if shape is None:
        raise Malformed(header)
    rows = []
    for line in lines:
        words = line.split()
        if not words:
            continue
        hub = 0
        if shape["hub"]:
            hub = HUBS.get(words.pop(0), -1)
        if hub < 0 or len(words) not in ((6, 7) if shape["bus"] else (6,)):
            raise Malformed(line)
        port, state, speed, *dev, sock, name = words
        row = Row(
            port=decimal(port),
            controller=controller,
            hub=hub,
            state=decimal(state),
            speed=decimal(speed),
            devid=device(dev),
            sockfd=socket(sock, shape["socket"]),
            local_busid=busid(name),
        )
        if not 4 <= row.state <= 7:
            raise Malformed(line)
        rows.append(row)
    return rows


def parse(texts: list[bytes]) -> list[Row]:
    """All rows in text order. Raises Malformed as the C parser raises StatusFormatError."""
    rows: list[Row] = []
    for controller, text in enumerate(texts):
        rows += parse_text(text, controller)
    ports = {row.port for row in rows}
    if len(ports) != len(rows) or max(ports, default=0) >= MAX_PORTS:
        raise Malformed("port twice or too high")
    return rows
