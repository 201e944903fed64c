# SPDX-License-Identifier: Apache-2.0
"""Status texts of every known shape (field-reports.md S1 to S6), and the rows they stand for."""

from __future__ import annotations

from usbdra._native import vhci
from usbdra._native.vhci import HUB_HIGH, HUB_SUPER, HUB_UNKNOWN, Row

S1_HEADER = b"hub port sta spd dev      sockfd local_busid\n"
S4_HEADER = b"hub port sta spd dev      socket           local_busid\n"
S5_HEADER = b"port sta spd dev      socket           local_busid\n"
S6_HEADER = b"prt sta spd bus dev socket           local_busid\n"

S1 = (
    S1_HEADER
    + b"hs  0000 004 000 00000000 000000 0-0\n"
    + b"hs  0001 006 003 00030007 000011 5-2\n"
    + b"ss  0002 004 000 00000000 000000 0-0\n"
    + b"ss  0003 004 000 00000000 000000 0-0\n"
)
S1_ROWS = [
    Row(0, 0, HUB_HIGH, 4, 0, 0, 0, b""),
    Row(1, 0, HUB_HIGH, 6, 3, 0x30007, 11, b"5-2"),
    Row(2, 0, HUB_SUPER, 4, 0, 0, 0, b""),
    Row(3, 0, HUB_SUPER, 4, 0, 0, 0, b""),
]

S3_NOT_READY = (
    S1_HEADER
    + b"hs  0000 005 000 00000000 0000000000000000 0-0\n"
    + b"ss  0001 005 000 00000000 0000000000000000 0-0\n"
)
S3_ROWS = [
    Row(0, 0, HUB_HIGH, 5, 0, 0, 0, b""),
    Row(1, 0, HUB_SUPER, 5, 0, 0, 0, b""),
]

S4 = (
    S4_HEADER
    + b"hs  0000 004 000 00000000 0000000000000000 0-0\n"
    + b"ss  0008 006 005 00020003 ffff88003c0a8a00 3-1.2\n"
)
S4_ROWS = [
    Row(0, 0, HUB_HIGH, 4, 0, 0, 0, b""),
    Row(8, 0, HUB_SUPER, 6, 5, 0x20003, 0xFFFF88003C0A8A00, b"3-1.2"),
]

S5 = (
    S5_HEADER
    + b"0000 004 000 00000000 0000000000000000 0-0\n"
    + b"0001 006 002 0001000a ffff88003c0a8a00 9-1\n"
)
S5_ROWS = [
    Row(0, 0, HUB_UNKNOWN, 4, 0, 0, 0, b""),
    Row(1, 0, HUB_UNKNOWN, 6, 2, 0x1000A, 0xFFFF88003C0A8A00, b"9-1"),
]

S6 = (
    S6_HEADER
    + b"000 004 000 000 000 0000000000000000 0-0\n"
    + b"001 006 003 00010002 ffff88003c0a8a00 2-1\n"
    + b"002 005 000 000 000 0000000000000000 0-0\n"
)
S6_ROWS = [
    Row(0, 0, HUB_UNKNOWN, 4, 0, 0, 0, b""),
    Row(1, 0, HUB_UNKNOWN, 6, 3, 0x10002, 0xFFFF88003C0A8A00, b"2-1"),
    Row(2, 0, HUB_UNKNOWN, 5, 0, 0, 0, b""),
]

SHAPES = {
    "S1": (S1, S1_ROWS),
    "S3": (S3_NOT_READY, S3_ROWS),
    "S4": (S4, S4_ROWS),
    "S5": (S5, S5_ROWS),
    "S6": (S6, S6_ROWS),
}


def controllers(count: int, high: int, super_: int) -> list[bytes]:
    """Texts of `count` idle controllers as a current kernel prints them."""
    texts = []
    for number in range(count):
        start = number * (high + super_)
        hubs = [b"hs"] * high + [b"ss"] * super_
        rows = [
            b"%s  %04d 004 000 00000000 000000 0-0\n" % (hub, start + i)
            for i, hub in enumerate(hubs)
        ]
        texts.append(S1_HEADER + b"".join(rows))
    return texts


def rows(*texts: bytes) -> list[Row]:
    return list(vhci.parse(list(texts)))
