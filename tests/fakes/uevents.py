# SPDX-License-Identifier: Apache-2.0
"""A uevent source on a real descriptor: the test writes, the event loop is woken by the kernel.

Datagrams of a socket pair stand for netlink messages; what is in them is a number that names a
queued event, so events keep their Python identity. Example:

    source = FakeUevents()
    hub = UeventHub(source)
    hub.start()
    source.device("add", stick)          # a tests.fakes.sysfs.FakeDevice
    source.interface("bind", stick, 0)
    source.overrun()                     # ENOBUFS: events were lost
"""

from __future__ import annotations

import socket
from pathlib import Path

from tests.fakes.sysfs import FakeDevice
from usbdra.discovery.uevent import RESCAN
from usbdra.types import Uevent


class FakeUevents:
    """Implements `UeventSource`; the helpers send what the kernel would."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._reader.setblocking(False)
        self._sent: list[Uevent] = []
        self.closed = False

    def fileno(self) -> int:
        return self._reader.fileno()

    def drain(self) -> list[Uevent]:
        events = []
        while True:
            try:
                events.append(self._sent[int(self._reader.recv(16))])
            except BlockingIOError:
                return events

    def close(self) -> None:
        self.closed = True
        self._reader.close()
        self._writer.close()

    def send(self, *events: Uevent) -> None:
        for event in events:
            self._sent.append(event)
            self._writer.send(b"%d" % (len(self._sent) - 1))

    def overrun(self) -> None:
        self.send(RESCAN)

    def device(self, action: str, device: FakeDevice) -> None:
        self.send(device_event(action, device))

    def interface(self, action: str, device: FakeDevice, number: int = 0) -> None:
        self.send(interface_event(action, device, number))

    def child(self, action: str, subsystem: str, device: FakeDevice, path: Path) -> None:
        self.send(child_event(action, subsystem, device, path))


def device_event(action: str, device: FakeDevice) -> Uevent:
    return Uevent(
        action,
        device.devpath,
        "usb",
        "usb_device",
        (
            ("ACTION", action),
            ("DEVPATH", device.devpath),
            ("SUBSYSTEM", "usb"),
            ("DEVTYPE", "usb_device"),
            ("BUSNUM", f"{device.bus:03d}"),
            ("DEVNUM", f"{device.devnum:03d}"),
        ),
    )


def interface_event(action: str, device: FakeDevice, number: int = 0) -> Uevent:
    devpath = f"{device.devpath}/{device.interface_name(number)}"
    return Uevent(action, devpath, "usb", "usb_interface")


def child_event(action: str, subsystem: str, device: FakeDevice, path: Path) -> Uevent:
    return Uevent(action, "/" + str(path.relative_to(device.tree.sys)), subsystem, None)
