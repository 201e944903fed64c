# SPDX-License-Identifier: Apache-2.0
"""The kubelet plugin's records: which claims this node serves, and how far each has come.

Owns the shape of a claim's record, its version and the steps from older versions. Pure: reading
and writing the files is state/store.py's work, one file a claim. Must not import anything of
ours but types and the codec.

A claim's record is written before the kernel is touched and after, so that whoever reads it
next knows what may exist: `PREPARING` may have attached any of its devices, `PREPARED` has all
of them, `RELEASING` may still have some.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from usbdra.state.codec import decode, encode
from usbdra.types import (
    BusId,
    ChildNode,
    ClaimUid,
    DeviceName,
    Endpoints,
    Hub,
    NodeName,
    PortId,
)

VERSION = 1

Migration = Callable[[dict[str, Any]], dict[str, Any]]
MIGRATIONS: Mapping[int, Migration] = {}
"""Steps by the version they start from; each returns the data of the next version."""


class Phase(Enum):
    """How far a claim has come."""

    PREPARING = "preparing"
    PREPARED = "prepared"
    RELEASING = "releasing"


class Route(Enum):
    """How a claim reaches its device."""

    DIRECT = "direct"  # plugged into this node, held for the claim
    VHCI = "vhci"  # brought from another node to a port of a vhci hub
    OBSERVE = "observe"  # admin access: looked at, never held


@dataclass(frozen=True, slots=True)
class Identity:
    """What proves that a device is the same one: numbers change, these do not."""

    vendor_id: str
    product_id: str
    serial: str | None = None

    def same(self, other: Identity) -> bool:
        """True when nothing both sides know differs; a missing serial proves nothing."""
        if (self.vendor_id, self.product_id) != (other.vendor_id, other.product_id):
            return False
        return self.serial is None or other.serial is None or self.serial == other.serial


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """Which claim. `pod_claim_name` is the pod's own name of a claim made from a template."""

    namespace: str
    name: str
    uid: ClaimUid
    pod_claim_name: str | None = None

    def __str__(self) -> str:
        return f"claim {self.namespace}/{self.name} ({self.uid})"


@dataclass(frozen=True, slots=True)
class Intent:
    """What an attach is about to write to the kernel: the proof that a used port is ours.

    devid: bus << 16 | device number on the exporter, as the port's row will show it.
    """

    port: PortId
    devid: int


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A character or block device node of this boot."""

    path: str
    major: int
    minor: int


@dataclass(frozen=True, slots=True)
class Held:
    """A device in a claim's hands: its numbers of this boot and what it proved to be.

    `port`, `devid` (as in Intent) and `link`, its connection, only on vhci; `syspath`, where it
    is plugged in, only for a device of this node.
    """

    busid: BusId
    busnum: int
    devnum: int
    node: DeviceNode
    identity: Identity
    children: tuple[ChildNode, ...] = ()
    port: PortId | None = None
    devid: int | None = None
    link: Endpoints | None = None
    syspath: str = ""


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """One allocated device of a claim: where it is from, how it is reached, what is held.

    `slot` counts the devices of one request from 0 in the order of the allocation, `slots` is
    their number. `config` is the JSON form of plugin/config.py's settings.
    """

    request: str
    pool: str
    device: str
    name: DeviceName
    node: NodeName
    route: Route
    slot: int = 0
    slots: int = 1
    share_id: str | None = None
    hub: Hub | None = None
    identity: Identity | None = None
    """What the device must prove to be; None when only the exporter knows."""
    config: Mapping[str, Any] = field(default_factory=dict)
    intent: Intent | None = None
    held: Held | None = None
    drivers_off: Mapping[str, str] = field(default_factory=dict)
    """Interfaces of a device of this node (`1-3:1.0`) whose host drivers the claim keeps off, and
    which: written before the first is unbound, so that all get theirs back."""
    syspath: str = ""
    """The port of this node where the claim had its device: it stays the device's for the claim's
    life, whatever is there meanwhile."""

    @property
    def base_request(self) -> str:
        """The request's name without a subrequest's part."""
        return self.request.partition("/")[0]

    @property
    def key(self) -> tuple[str, int]:
        """What tells a claim's devices apart."""
        return (self.base_request, self.slot)

    @property
    def exclusive(self) -> bool:
        """Whether the device may be in only one claim's hands."""
        return self.route is not Route.OBSERVE


@dataclass(frozen=True, slots=True)
class LinkRecord:
    """An allocated way to a device (`direct`, a port); the kubelet's answer lists it too."""

    request: str
    pool: str
    device: str
    share_id: str | None = None


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """A claim of this node. `boot_id` dates every number in it (/proc/sys/kernel/random).

    `error` says why the last attempt to go on did not finish.
    """

    ref: ClaimRef
    phase: Phase
    boot_id: str
    devices: tuple[DeviceRecord, ...]
    links: tuple[LinkRecord, ...] = ()
    error: str = ""

    def with_device(self, device: DeviceRecord) -> ClaimRecord:
        """The same record with this device in place of the one of the same key."""
        devices = tuple(device if d.key == device.key else d for d in self.devices)
        return replace(self, devices=devices)


class ClaimSchema:
    """How claim records look on disk (state/schema.py `Schema`)."""

    kind = "claim"
    version = VERSION

    def __init__(self, migrations: Mapping[int, Migration] = MIGRATIONS) -> None:
        self._migrations = migrations

    def encode(self, record: ClaimRecord) -> Mapping[str, Any]:
        """The record as JSON values of the present version."""
        values: dict[str, Any] = encode(record)
        return values

    def decode(self, version: int, data: Mapping[str, Any]) -> ClaimRecord:
        """A record of this version or of one that a migration starts from.

        Raises ValueError for a version with no way up and for a field that is unknown, missing
        or mistyped; the text names it.
        """
        values = dict(data)
        while version < VERSION:
            if version not in self._migrations:
                raise ValueError(f"there is no way up from version {version}")
            values = self._migrations[version](values)
            version += 1
        return decode(ClaimRecord, values, "claim")
