# SPDX-License-Identifier: Apache-2.0
"""One URB over a link in use, to see that it carries the device. Owns the bytes alone.

Source: Documentation/usb/usbip_protocol.rst of Linux, USBIP_CMD_SUBMIT and USBIP_RET_SUBMIT.
"""

from __future__ import annotations

import struct

from tests.cluster.attacks.attacker import Wire

_CMD_SUBMIT, _RET_SUBMIT, _IN, _HEADER = 1, 3, 1, 48
_SETUP = bytes((0x80, 6, 0, 1, 0, 0, 18, 0))


def device_descriptor(link: Wire, devid: int) -> bytes:
    """The 18 bytes that GET_DESCRIPTOR(device) gives. Raises Ended."""
    basic = struct.pack(">5I", _CMD_SUBMIT, 1, devid, _IN, 0)
    link.write(basic + struct.pack(">I4i", 0, 18, 0, 0, 0) + _SETUP)
    reply = link.exactly(_HEADER)
    (code,) = struct.unpack_from(">I", reply)
    status, length = struct.unpack_from(">iI", reply, 20)
    assert (code, status) == (_RET_SUBMIT, 0)
    return link.exactly(length)
