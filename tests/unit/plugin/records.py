# SPDX-License-Identifier: Apache-2.0
"""Claim records of held devices, for tests of what is made from them."""

from __future__ import annotations

from typing import Any

from usbdra.plugin.config import DeviceConfig, to_record
from usbdra.state.claims import (
    ClaimRecord,
    ClaimRef,
    DeviceNode,
    DeviceRecord,
    Held,
    Identity,
    LinkRecord,
    Phase,
    Route,
)
from usbdra.types import BusId, ChildNode, ClaimUid, DeviceName, Hub, NodeName, PortId

UID = ClaimUid("uid-1")
REF = ClaimRef("lab", "stick", UID)
IDENTITY = Identity("0951", "1666", "STICK")


def held(devnum: int = 2, children: tuple[ChildNode, ...] = (), port: int | None = 3) -> Held:
    return Held(
        busid=BusId("5-1"),
        busnum=5,
        devnum=devnum,
        node=DeviceNode(f"/dev/bus/usb/005/{devnum:03d}", 189, 512 + devnum - 1),
        identity=IDENTITY,
        children=children,
        port=None if port is None else PortId(port),
        devid=None if port is None else 0x10002,
    )


def device(config: DeviceConfig | None = None, request: str = "usb", **more: Any) -> DeviceRecord:
    values: dict[str, Any] = {
        "request": request,
        "pool": "usb-a",
        "device": "stick",
        "name": DeviceName("stick"),
        "node": NodeName("a"),
        "route": Route.VHCI,
        "hub": Hub.HIGH,
        "identity": IDENTITY,
        "config": to_record(config or DeviceConfig()),
        "held": held(),
    }
    return DeviceRecord(**{**values, **more})


def record(*devices: DeviceRecord, ref: ClaimRef = REF) -> ClaimRecord:
    links = (LinkRecord("link/vhci", "usblink-b", "vhci-high", "share-1"),)
    return ClaimRecord(ref, Phase.PREPARED, "boot-1", devices or (device(),), links)


TTY = ChildNode("tty", "/dev/ttyACM3", 166, 3, 1)
HIDRAW = ChildNode("hidraw", "/dev/hidraw0", 245, 0, 2)
DISK = ChildNode("block", "/dev/sdb", 8, 16, 0)
PARTITION_2 = ChildNode("block", "/dev/sdb2", 8, 18, 0)
PARTITION_10 = ChildNode("block", "/dev/sdb10", 8, 26, 0)
