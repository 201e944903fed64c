# SPDX-License-Identifier: Apache-2.0
"""A Broker of devices that do not exist: real sessions, sockets and refusals, no kernel.

`hand_over` keeps a copy of the socket, as the kernel does, in `sessions`; what a test reads there
is what the kernel would get.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from usbdra.errors import DeviceBusy, NotFound
from usbdra.exporter.broker import Granted, GrantRequest, Peer
from usbdra.types import BusId, DeviceName, RemoteDevice

STICK = RemoteDevice(
    busid=BusId("1-1.4"),
    busnum=1,
    devnum=9,
    speed_code=3,
    vendor_id="0951",
    product_id="1666",
    bcd="0110",
    class_code=0,
    subclass=0,
    protocol=0,
    configuration=1,
    interfaces=((8, 6, 80),),
    name=DeviceName("usb-0951-1666-60a44c"),
    serial="60A44C",
    product="DataTraveler 3.0",
    manufacturer="Kingston",
)
KEYBOARD = RemoteDevice(
    busid=BusId("2-3"),
    busnum=2,
    devnum=4,
    speed_code=1,
    vendor_id="046d",
    product_id="c31c",
    bcd="6402",
    class_code=0,
    subclass=0,
    protocol=0,
    configuration=1,
    interfaces=((3, 1, 1), (3, 0, 0)),
    name=DeviceName("usb-046d-c31c-p2-3"),
)


@dataclass
class FakeBroker:
    """`delay` seconds pass in acquire; `fail_acquire` and `fail_hand_over` are raised there."""

    devices: list[RemoteDevice] = field(default_factory=lambda: [STICK, KEYBOARD])
    fail_acquire: Exception | None = None
    fail_hand_over: Exception | None = None
    delay: float = 0.0
    sessions: dict[str, socket.socket] = field(default_factory=dict)
    holders: dict[BusId, tuple[str, str]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    requests: list[tuple[GrantRequest, Peer]] = field(default_factory=list)

    async def inventory(self, peer: Peer) -> Sequence[RemoteDevice]:
        return [
            replace(one, available=False, reason=f"in use by {self.holders[one.busid][1]}")
            if one.busid in self.holders
            else one
            for one in self.devices
        ]

    async def acquire(self, request: GrantRequest, peer: Peer, sock: socket.socket) -> Granted:
        self.calls.append("acquire")
        self.requests.append((request, peer))
        await asyncio.sleep(self.delay)
        if self.fail_acquire is not None:
            raise self.fail_acquire
        for device in self.devices:
            if request.device in (device.busid, device.name, device.serial):
                break
        else:
            raise NotFound(f"no device {request.device} is offered here")
        if device.busid in self.holders:
            raise DeviceBusy(request.device, self.holders[device.busid][1])
        session = f"s{len(self.requests)}"
        holder = f"claim {request.claim}" if request.claim else request.holder or str(peer)
        self.holders[device.busid] = (session, holder)
        return Granted(session, device, (("authorise", 0.001), ("bind", 0.002)))

    async def hand_over(self, granted: Granted, sock: socket.socket) -> None:
        self.calls.append("hand_over")
        if self.fail_hand_over is not None:
            raise self.fail_hand_over
        self.sessions[granted.session] = sock.dup()

    async def abandon(self, granted: Granted) -> None:
        self.calls.append("abandon")
        self.holders = {k: v for k, v in self.holders.items() if v[0] != granted.session}
        kernel = self.sessions.pop(granted.session, None)
        if kernel is not None:
            kernel.close()

    def close(self) -> None:
        for kernel in self.sessions.values():
            kernel.close()
