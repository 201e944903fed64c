# SPDX-License-Identifier: Apache-2.0
"""Reads the bytes of a sysfs `descriptors` file: device descriptor, then every configuration.

Owns one pass over untrusted bytes. Must not do I/O and must not fail: a device whose
descriptors are cut or nonsense is still a device, so the walk ends where the sense does.
Layout: USB 2.0 section 9.6; kernel side: drivers/usb/core/sysfs.c `descriptors_read`.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_BYTES = 18 + 65535
"""The device descriptor and one configuration of the greatest wTotalLength."""

_DEVICE, _CONFIGURATION, _INTERFACE, _ENDPOINT = 1, 2, 4, 5
_LEAST_LENGTH = {_DEVICE: 18, _CONFIGURATION: 9, _INTERFACE: 9, _ENDPOINT: 7}
_TRANSFER_TYPE_MASK, _ISOCHRONOUS = 0x03, 0x01


@dataclass(frozen=True, slots=True)
class DescriptorSummary:
    """What discovery needs of a device's descriptors.

    `serial_index` is iSerialNumber: not 0 means that the device says it has a serial.
    `isochronous` looks at every alternate setting of every configuration. `interfaces` has
    (number, class, subclass, protocol) of the first configuration's alternate settings 0.
    """

    serial_index: int = 0
    isochronous: bool = False
    interfaces: tuple[tuple[int, int, int, int], ...] = ()


def parse(data: bytes | bytearray | memoryview) -> DescriptorSummary:
    """Summarise `data`; at most `MAX_BYTES` of it are looked at."""
    view = memoryview(data)[:MAX_BYTES]
    serial_index = configurations = 0
    interfaces: list[tuple[int, int, int, int]] = []
    isochronous = False
    position = 0
    end = len(view)
    while position + 2 <= end:
        length, kind = view[position], view[position + 1]
        # A length under 2 would not move on; a descriptor past the end is cut.
        if length < max(2, _LEAST_LENGTH.get(kind, 2)) or position + length > end:
            break
        if kind == _DEVICE:
            serial_index = view[position + 16]
        elif kind == _CONFIGURATION:
            configurations += 1
        elif kind == _INTERFACE and configurations == 1 and view[position + 3] == 0:
            number, (code, subclass, protocol) = (
                view[position + 2],
                view[position + 5 : position + 8],
            )
            interfaces.append((number, code, subclass, protocol))
        elif kind == _ENDPOINT:
            isochronous |= view[position + 3] & _TRANSFER_TYPE_MASK == _ISOCHRONOUS
        position += length
    return DescriptorSummary(
        serial_index=serial_index,
        isochronous=isochronous,
        interfaces=tuple(interfaces),
    )
