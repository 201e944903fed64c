# SPDX-License-Identifier: Apache-2.0
"""USB/IP 1.1.1 message layouts: bytes to values and back, every length capped.

Owns the byte layouts only, over memoryviews. Must not do I/O and must not know conversations
(session.py) or JSON bodies (extension.py).

Sources: Documentation/usb/usbip_protocol.rst and tools/usb/usbip/src/usbip_network.h of the
kernel. All integers are big-endian.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from usbdra.errors import ProtocolError
from usbdra.types import BusId, RemoteDevice

VERSION = 0x0111

OP_REQ_DEVLIST = 0x8005
OP_REP_DEVLIST = 0x0005
OP_REQ_IMPORT = 0x8003
OP_REP_IMPORT = 0x0003
# Ours, served on encrypted links only. The high bit marks a request, as in the stock codes.
OP_REQ_INVENTORY = 0x8F01
OP_REP_INVENTORY = 0x0F01
OP_REQ_GRANT = 0x8F02
OP_REP_GRANT = 0x0F02
REPLY_MASK = 0x7FFF

HEADER_SIZE = 8
BUSID_SIZE = 32
DEVICE_SIZE = 312
INTERFACE_SIZE = 4
COUNT_SIZE = 4
LENGTH_SIZE = 4

MAX_DEVICES = 1024
"""Devices one devlist reply may hold: 1.3 MiB at the most, read device by device."""
MAX_INVENTORY_BODY = 256 * 1024
MAX_GRANT_BODY = 8 * 1024
"""One device with 255 interfaces and the longest texts fits."""
MAX_BODY = 4096
"""Bytes of any other JSON body: requests and refusals."""

_HEADER = struct.Struct(">HHI")
_U32 = struct.Struct(">I")
# path, busid, busnum, devnum, speed, idVendor, idProduct, bcdDevice, bDeviceClass,
# bDeviceSubClass, bDeviceProtocol, bConfigurationValue, bNumConfigurations, bNumInterfaces
_DEVICE = struct.Struct(">256s32sIIIHHHBBBBBB")
_INTERFACE = struct.Struct(">BBBx")

_BUSID = re.compile(r"[1-9][0-9]{0,4}-[1-9][0-9]{0,2}(?:\.[1-9][0-9]{0,2}){0,6}", re.ASCII)
_MAX_NUMBER = 0xFFFF
_MAX_SPEED_CODE = 6


class Status(IntEnum):
    """`status` of a reply (usbip_common.h `enum usbip_op_status` in tools/usb/usbip)."""

    OK = 0
    NOT_AVAILABLE = 1
    BUSY = 2
    DEVICE_ERROR = 3
    NO_DEVICE = 4
    ERROR = 5


class Header(NamedTuple):
    """op_common: the first 8 bytes of every message before the hand-over."""

    version: int
    code: int
    status: int


def is_busid(text: str) -> bool:
    """True for a bus id as the kernel makes them (`1-1.4`), short enough for its wire field."""
    return len(text) < BUSID_SIZE and _BUSID.fullmatch(text) is not None


def pack_header(code: int, status: int = 0) -> bytes:
    """op_common with our version."""
    return _HEADER.pack(VERSION, code, status)


def parse_header(data: bytes | memoryview) -> Header:
    """Parse exactly HEADER_SIZE bytes; judges nothing, so that a reply can name what was wrong."""
    return Header._make(_HEADER.unpack(data))


def pack_u32(value: int) -> bytes:
    """A device count or body length."""
    return _U32.pack(value)


def parse_u32(data: bytes | memoryview, what: str, limit: int) -> int:
    """Parse a count or length of at most `limit`. Raises ProtocolError naming `what`."""
    (value,) = _U32.unpack(data)
    if value > limit:
        raise ProtocolError(f"{what} is {value}; at most {limit} is accepted")
    return int(value)


def pack_busid(busid: str) -> bytes:
    """The 32-byte busid of an import request. Raises ValueError for what is no bus id."""
    if not is_busid(busid):
        raise ValueError(f"not a bus id: {busid!r}")
    return busid.encode("ascii").ljust(BUSID_SIZE, b"\0")


def parse_busid(data: bytes | memoryview) -> BusId:
    """Parse a 32-byte busid field. Raises ProtocolError with the text, cut."""
    raw = bytes(data).split(b"\0", 1)[0]
    text = raw.decode("ascii", "backslashreplace")
    if len(data) != BUSID_SIZE or not is_busid(text):
        raise ProtocolError(f"busid {text[:BUSID_SIZE]!r} is not a bus id")
    return BusId(text)


def pack_device(device: RemoteDevice) -> bytes:
    """`struct usbip_usb_device`, 312 bytes.

    The path is the one that resolves on every kernel; clients only print it. No client reads
    bNumConfigurations; 1 is what a configured device has at least.
    """
    return _DEVICE.pack(
        f"/sys/bus/usb/devices/{device.busid}".encode("ascii"),
        device.busid.encode("ascii"),
        device.busnum,
        device.devnum,
        device.speed_code,
        int(device.vendor_id, 16),
        int(device.product_id, 16),
        int(device.bcd, 16),
        device.class_code,
        device.subclass,
        device.protocol,
        device.configuration,
        1,
        min(len(device.interfaces), 0xFF),
    )


class DeviceRecord(NamedTuple):
    """A parsed `usbip_usb_device`: the device, and how many interface records follow it in a
    devlist (none follow in an import reply)."""

    device: RemoteDevice
    interface_count: int


def parse_device(data: bytes | memoryview) -> DeviceRecord:
    """Parse exactly DEVICE_SIZE bytes. Raises ProtocolError naming the field and value."""
    (
        _path,
        busid,
        busnum,
        devnum,
        speed,
        vendor,
        product,
        bcd,
        class_code,
        subclass,
        protocol,
        configuration,
        _configurations,
        interface_count,
    ) = _DEVICE.unpack(data)
    device = RemoteDevice(
        busid=parse_busid(busid),
        busnum=check_number("busnum", busnum, 1, _MAX_NUMBER),
        devnum=check_number("devnum", devnum, 1, _MAX_NUMBER),
        speed_code=check_number("speed", speed, 0, _MAX_SPEED_CODE),
        vendor_id=f"{vendor:04x}",
        product_id=f"{product:04x}",
        bcd=f"{bcd:04x}",
        class_code=class_code,
        subclass=subclass,
        protocol=protocol,
        configuration=configuration,
        interfaces=(),
    )
    return DeviceRecord(device, interface_count)


def check_number(what: str, value: int, low: int, high: int) -> int:
    """Return value when low <= value <= high. Raises ProtocolError naming `what`."""
    if not low <= value <= high:
        raise ProtocolError(f"{what} is {value}; {low} to {high} is accepted")
    return value


def pack_interfaces(device: RemoteDevice) -> bytes:
    """The interface records that follow a device in a devlist, 4 bytes each."""
    return b"".join(_INTERFACE.pack(*triple) for triple in device.interfaces[:0xFF])


def parse_interfaces(data: bytes | memoryview) -> tuple[tuple[int, int, int], ...]:
    """Parse interface records (class, subclass, protocol); len(data) is a multiple of 4."""
    return tuple(_INTERFACE.iter_unpack(data))


def pack_devlist(devices: Sequence[RemoteDevice]) -> bytes:
    """A whole OP_REP_DEVLIST. Raises ValueError above MAX_DEVICES."""
    if len(devices) > MAX_DEVICES:
        raise ValueError(f"{len(devices)} devices do not fit a devlist of {MAX_DEVICES}")
    parts = [pack_header(OP_REP_DEVLIST), pack_u32(len(devices))]
    for device in devices:
        parts += (pack_device(device), pack_interfaces(device))
    return b"".join(parts)
