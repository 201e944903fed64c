# SPDX-License-Identifier: Apache-2.0
"""Runs in a node: a disk in memory, served over USB/IP by pure Python (PyPI: usbip).

    guest_disk.py PORT SERIAL MIB

Its device is one that the package makes up: nothing of the node's own is exported.
"""

import sys
import threading

import usbip
from usbip.classes.device.msc import MSC
from usbip.device import USBDevice

BLOCK = 512


class Memory:
    """Blocks, as the package asks for them."""

    block_size = BLOCK

    def __init__(self, mib):
        self.num_blocks = (mib << 20) // BLOCK
        self._data = bytearray(mib << 20)

    def read(self, lba, count):
        """Bytes of some blocks."""
        return bytes(self._data[lba * BLOCK : (lba + count) * BLOCK])

    def write(self, lba, count, data):
        """Keep them."""
        self._data[lba * BLOCK : (lba + count) * BLOCK] = data


def main():
    """Until the test ends it."""
    port, serial, mib = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    device = USBDevice(0x1D6B, 0x0104, product="disk", manufacturer="usbdra", serial=serial)
    device.set_speed(usbip.SPEED_HIGH)
    device.add(MSC(Memory(mib)))
    with device.plug(via=usbip.USBIP("0.0.0.0", port)):
        print("ready", flush=True)
        threading.Event().wait()


main()
