# SPDX-License-Identifier: Apache-2.0
"""The words of the system as types: speeds, hubs, ports, devices.

Owns plain values only. Must not do I/O and must not import anything of ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NewType

BusId = NewType("BusId", str)
"""A device's place on a running system, as sysfs spells it: `1-1.4`, `5-2`."""

PortId = NewType("PortId", int)
"""A vhci port as the `status` files number it, 0 to nports - 1 over all controllers."""

DeviceName = NewType("DeviceName", str)
"""A device's stable name, a DNS label of at most 63 characters (discovery/names.py)."""

NodeName = NewType("NodeName", str)
ClaimUid = NewType("ClaimUid", str)

NODE_URI_PREFIX = "usbdra://node/"
"""A certificate names its node in a URI SAN: this and the NodeName."""
_OUTSIDE = "outside/"
CONTROLLER = NodeName("cluster/controller")
"""The controller as a peer: it may list devices, and has none."""


def outside_node(host: str) -> NodeName:
    """A host outside the cluster where a node's name is asked for: its devices' place, its pool
    and its certificate. No Node can have such a name, for the slash in it."""
    return NodeName(_OUTSIDE + host)


def outside_host(node: str) -> str | None:
    """The host outside the cluster that `node` stands for; None for a node."""
    return node.removeprefix(_OUTSIDE) if node.startswith(_OUTSIDE) else None


def is_node(name: str) -> bool:
    """Whether a peer of this name is a node, and neither a host outside nor the controller."""
    return "/" not in name


class SpeedClass(Enum):
    """What an operator tells apart; `super` covers 5 Gbit/s and everything above."""

    LOW = "low"
    FULL = "full"
    HIGH = "high"
    SUPER = "super"


class Speed(Enum):
    """A device's speed: (text of sysfs `speed` in Mbit/s, code of `enum usb_device_speed`).

    Source: drivers/usb/core/sysfs.c `speed_show`, include/uapi/linux/usb/ch9.h. sysfs says
    `10000` and `20000` for the two flavours of SUPER_PLUS; both have code 6.
    """

    UNKNOWN = ("unknown", 0)
    LOW = ("1.5", 1)
    FULL = ("12", 2)
    HIGH = ("480", 3)
    SUPER = ("5000", 5)
    SUPER_PLUS = ("10000", 6)
    SUPER_PLUS_BY_2 = ("20000", 6)

    @property
    def mbit_text(self) -> str:
        """The speed as sysfs spells it, in Mbit/s."""
        return self.value[0]

    @property
    def code(self) -> int:
        """`enum usb_device_speed`: 1 low, 2 full, 3 high, 5 super, 6 super plus, 0 unknown."""
        return self.value[1]

    @property
    def speed_class(self) -> SpeedClass | None:
        """The class that policy and hubs go by; None when the speed is unknown."""
        return _CLASS_OF_CODE.get(self.code)

    @classmethod
    def from_sysfs(cls, text: str) -> Speed:
        """Parse the text of a sysfs `speed` file; anything not known is UNKNOWN."""
        return _SPEED_OF_TEXT.get(text.strip(), cls.UNKNOWN)

    @classmethod
    def from_code(cls, code: int) -> Speed:
        """The first speed with this `enum usb_device_speed` code; UNKNOWN if there is none."""
        return _SPEED_OF_CODE.get(code, cls.UNKNOWN)


_CLASS_OF_CODE = {
    1: SpeedClass.LOW,
    2: SpeedClass.FULL,
    3: SpeedClass.HIGH,
    5: SpeedClass.SUPER,
    6: SpeedClass.SUPER,
}
_SPEED_OF_TEXT = {s.mbit_text: s for s in Speed}
_SPEED_OF_CODE = {s.code: s for s in reversed(Speed)}


class Hub(Enum):
    """The two halves of a vhci controller. The kernel picks one by speed, never by port."""

    HIGH = "high"
    SUPER = "super"

    @classmethod
    def for_speed(cls, speed: Speed) -> Hub:
        """The hub a device of this speed lands on (vhci_sysfs.c `attach_store`).

        Raises ValueError for an unknown speed.
        """
        if speed is Speed.UNKNOWN:
            raise ValueError("a device of unknown speed has no hub")
        return cls.SUPER if speed.code >= Speed.SUPER.code else cls.HIGH


class PortState(Enum):
    """A port's state, from `sta` of its row (usbip_common.h `enum usbip_device_status`)."""

    FREE = "free"  # 004 VDEV_ST_NULL
    ATTACHING = "attaching"  # 005 VDEV_ST_NOTASSIGNED
    USED = "used"  # 006 VDEV_ST_USED
    ERROR = "error"  # 007 VDEV_ST_ERROR
    STOPPING = "stopping"  # 006 with its socket already given up (sockfd -1)


@dataclass(frozen=True, slots=True)
class Port:
    """One row of a vhci status file.

    `hub` is None only for kernels before 4.13, whose rows do not tell. `devid` is
    bus << 16 | device number on the exporter, 0 when free. `local_busid` is None until the
    device has enumerated here.
    """

    port: PortId
    controller: int
    hub: Hub | None
    state: PortState
    speed_code: int
    devid: int
    local_busid: BusId | None


@dataclass(frozen=True, slots=True)
class UsbInterface:
    """One interface of the active configuration. Class codes are 0 to 255."""

    number: int
    class_code: int
    subclass: int
    protocol: int
    driver: str | None


@dataclass(frozen=True, slots=True)
class UsbDevice:
    """One USB device as sysfs shows it, hubs included; texts are decoded, never trusted.

    `vendor_id` and `product_id` are four lower-case hex digits, `bcd` likewise. `serial_raw`
    holds the bytes of the sysfs file without the line feed, since identity must not depend on
    how they decode; `serial` is the same for people and API fields. `port_path` names the
    physical port independent of bus numbers (discovery/names.py). `syspath` is the real path
    below the root. `interfaces` is empty while the device is unconfigured.
    """

    busid: BusId
    syspath: str
    busnum: int
    devnum: int
    vendor_id: str
    product_id: str
    bcd: str
    manufacturer: str | None
    product: str | None
    serial: str | None
    serial_raw: bytes | None
    class_code: int
    subclass: int
    protocol: int
    speed: Speed
    port_path: str
    interfaces: tuple[UsbInterface, ...]
    isochronous: bool
    driver: str | None
    authorized: bool
    configuration: int | None
    imported: bool
    major: int | None
    minor: int | None

    @property
    def is_hub(self) -> bool:
        """True for hubs and root hubs (class 09), which are never offered."""
        return self.class_code == 0x09

    @property
    def devid(self) -> int:
        """bus << 16 | device number, as the `attach` file wants it."""
        return self.busnum << 16 | self.devnum

    @property
    def node_path(self) -> str:
        """The device node, `/dev/bus/usb/BBB/DDD`."""
        return f"/dev/bus/usb/{self.busnum:03d}/{self.devnum:03d}"


@dataclass(frozen=True, slots=True)
class Offer:
    """A device with what policy says of it. `reason` is empty exactly when `exportable`.

    `exportable`: may be used from another node. `usable`: may be offered at all (locally).
    """

    name: DeviceName
    device: UsbDevice
    usable: bool
    exportable: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Uevent:
    """One kernel uevent (Documentation: kobject_uevent). `devpath` has no `/sys` prefix.

    `action` is `add`, `remove`, `change`, `bind`, `unbind`, ...; our own action `rescan` stands
    for events that were lost (ENOBUFS) and asks every reader to look at the whole tree again.
    """

    action: str
    devpath: str
    subsystem: str
    devtype: str | None
    properties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ChildNode:
    """A device node that a driver made for an attached device: kind is the sysfs subsystem
    (`tty`, `hidraw`, `video4linux`, `sound`, `block`, `input`)."""

    kind: str
    path: str
    major: int
    minor: int
    interface: int | None


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Both ends of a TCP connection, seen from this node: what names a link whose socket is the
    kernel's. Addresses as text, without a scope."""

    local: str
    local_port: int
    peer: str
    peer_port: int

    def __str__(self) -> str:
        return f"{self.local}:{self.local_port}-{self.peer}:{self.peer_port}"


@dataclass(frozen=True, slots=True)
class RemoteDevice:
    """A device as an exporter describes it on the wire. Stock peers send no name and no serial."""

    busid: BusId
    busnum: int
    devnum: int
    speed_code: int
    vendor_id: str
    product_id: str
    bcd: str
    class_code: int
    subclass: int
    protocol: int
    configuration: int
    interfaces: tuple[tuple[int, int, int], ...]
    name: DeviceName | None = None
    serial: str | None = None
    product: str | None = None
    manufacturer: str | None = None
    available: bool = True
    reason: str = ""

    @property
    def devid(self) -> int:
        """bus << 16 | device number on the exporter."""
        return self.busnum << 16 | self.devnum


@dataclass(frozen=True, slots=True)
class Attachment:
    """A remote device in use here: which port it sits on and what can be opened."""

    port: PortId
    hub: Hub
    remote: RemoteDevice
    device: UsbDevice
    """What the kernel made of it here."""
    children: tuple[ChildNode, ...]
    timings: tuple[tuple[str, float], ...]
    """(phase, seconds) in order: connect, tls, authorise, attach, enumerate, settle; the
    exporter's own share as `exporter.authorise`, `exporter.bind`, `exporter.hand_over`."""
    unsettled: tuple[str, ...] = ()
    """What was still missing at the deadline, a sentence per interface; empty when all is there."""
    link: Endpoints | None = None
    """What names its connection once no descriptor does."""
