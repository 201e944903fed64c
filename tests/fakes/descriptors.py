# SPDX-License-Identifier: Apache-2.0
"""Builds the bytes of a sysfs `descriptors` file, as USB 2.0 chapter 9.6 lays them out.

Owns the well-formed case; broken inputs are made in the tests by cutting these bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

ISOCHRONOUS, BULK, INTERRUPT = 1, 2, 3


@dataclass(frozen=True)
class Endpoint:
    """`attributes` & 3 is the transfer type: 0 control, 1 isochronous, 2 bulk, 3 interrupt."""

    address: int
    attributes: int
    max_packet: int = 64

    def to_bytes(self) -> bytes:
        return struct.pack("<BBBBHB", 7, 5, self.address, self.attributes, self.max_packet, 1)


@dataclass(frozen=True)
class Interface:
    """One alternate setting of an interface; `driver` is what sysfs shows bound to it."""

    class_code: int
    subclass: int = 0
    protocol: int = 0
    number: int = 0
    alternate: int = 0
    driver: str | None = None
    endpoints: tuple[Endpoint, ...] = ()

    def to_bytes(self) -> bytes:
        head = struct.pack(
            "<9B",
            9,
            4,
            self.number,
            self.alternate,
            len(self.endpoints),
            self.class_code,
            self.subclass,
            self.protocol,
            0,
        )
        return head + b"".join(e.to_bytes() for e in self.endpoints)


STORAGE = Interface(8, 6, 80, driver="usb-storage", endpoints=(Endpoint(0x81, BULK, 512),))
KEYBOARD = Interface(3, 1, 1, driver="usbhid", endpoints=(Endpoint(0x81, INTERRUPT, 8),))
SERIAL = Interface(0xFF, 0, 0, driver="cp210x", endpoints=(Endpoint(0x81, BULK),))


def device_descriptor(
    vendor: int,
    product: int,
    bcd: int = 0x0100,
    device_class: tuple[int, int, int] = (0, 0, 0),
    *,
    usb: int = 0x0200,
    serial_index: int = 3,
    configurations: int = 1,
) -> bytes:
    return struct.pack(
        "<BBHBBBBHHHBBBB",
        18,
        1,
        usb,
        *device_class,
        64,
        vendor,
        product,
        bcd,
        1,
        2,
        serial_index,
        configurations,
    )


def configuration(interfaces: tuple[Interface, ...], value: int = 1) -> bytes:
    body = b"".join(i.to_bytes() for i in interfaces)
    numbers = len({i.number for i in interfaces})
    return struct.pack("<BBHBBBBB", 9, 2, 9 + len(body), numbers, value, 0, 0x80, 50) + body
