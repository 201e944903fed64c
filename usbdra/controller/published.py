# SPDX-License-Identifier: Apache-2.0
"""What nodes publish, as the controller sees it: ResourceSlices to devices.

Owns the reading of slices, the counterpart of slices/build.py. Pure. Must not know of objects
made from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from usbdra.types import DeviceName, NodeName, outside_host, outside_node

USB_MAJOR = 189  # Documentation/admin-guide/devices.txt: USB devices
_SHARED, _LOCAL = "usb-", "usblocal-"


class Reach(Enum):
    """Which nodes' pods may be given the device by the scheduler, and which may use it."""

    CLUSTER = "Cluster"
    """Seen by every node that can import."""
    NODE = "Node"
    """Seen by its own node; others reach it by a port and a name (docs/claims.md)."""
    LOCAL = "Local"
    """Never leaves its node."""


@dataclass(frozen=True, slots=True)
class Published:
    """One device of one node."""

    name: DeviceName
    node: NodeName
    reach: Reach
    attributes: Mapping[str, Any]
    """As slices/build.py names them, the API's unions unpacked."""

    @property
    def speed_class(self) -> str:
        """`high` or `super`: the hub it needs elsewhere; empty when it does not say."""
        return str(self.attributes.get("speedClass", ""))

    @property
    def tie(self) -> str:
        """The attribute that ties it to its direct link: `id` in the layout of a port each."""
        return "id" if "id" in self.attributes else "node"


@dataclass(frozen=True, slots=True)
class SlicePart:
    """What one ResourceSlice says of its pool."""

    pool: str
    generation: int
    count: int
    devices: tuple[Published, ...]


def read_slice(item: Mapping[str, Any], driver: str) -> SlicePart:
    """One slice of this driver. Pools of links have no devices for us."""
    spec = item["spec"]
    pool = spec["pool"]
    name = str(pool["name"])
    part = (name, int(pool["generation"]), int(pool["resourceSliceCount"]))
    split = _split(name)
    if split is None:
        return SlicePart(*part, ())
    prefix, node = split
    reach = Reach.NODE if spec.get("nodeName") else Reach.CLUSTER
    reach = Reach.LOCAL if prefix == _LOCAL else reach
    devices = (
        Published(DeviceName(entry["name"]), node, reach, _values(entry, driver))
        for entry in spec.get("devices") or ()
    )
    return SlicePart(*part, tuple(d for d in devices if d.attributes.get("kind") == "usb"))


def pool_devices(parts: Iterable[SlicePart]) -> dict[DeviceName, Published] | None:
    """The devices of one pool from all its slices; None while the newest state is incomplete.

    As the scheduler does, only the newest generation counts, and only once it is whole: a device
    must not seem to be pulled because its node is writing.
    """
    found = list(parts)
    newest = max((part.generation for part in found), default=0)
    current = [part for part in found if part.generation == newest]
    if current and len(current) != current[0].count:
        return None
    return {device.name: device for part in current for device in part.devices}


def node_of(pool: str) -> NodeName | None:
    """The node whose devices a pool holds; None for pools of links."""
    split = _split(pool)
    return split[1] if split else None


def publisher(pool: str) -> str:
    """The node that publishes a pool, one of links too."""
    return pool.partition("-")[2]


def place_of(status: Mapping[str, Any]) -> str:
    """The node of a NodeUSBDevice's status, or what stands for its host outside; "" for none."""
    if host := status.get("host"):
        return outside_node(str(host))
    return str(status.get("nodeName") or "")


def place_fields(place: str) -> dict[str, str]:
    """What a status says of a place; nothing for none."""
    host = outside_host(place)
    return {"host": host} if host is not None else {"nodeName": place} if place else {}


def status_attributes(device: Published) -> dict[str, Any]:
    """`status.attributes` of a NodeUSBDevice; what the device does not say is left out."""
    said = device.attributes
    found: dict[str, Any] = {"name": device.name}
    if outside_host(device.node) is None:
        found["nodeName"] = device.node
    for key in ("vendorID", "productID", "bcd", "serial", "manufacturer", "product"):
        found[key] = said.get(key)
    found["speed"] = said.get("speed")
    bus, number = said.get("bus"), said.get("deviceNumber")
    if isinstance(bus, int) and isinstance(number, int):
        found |= {
            "bus": str(bus),
            "deviceNumber": str(number),
            "devicePath": f"/dev/bus/usb/{bus:03d}/{number:03d}",
            "major": USB_MAJOR,
            "minor": (bus - 1) * 128 + number - 1,  # drivers/usb/core/usb.c
        }
    return {key: value for key, value in found.items() if value is not None}


def _split(pool: str) -> tuple[str, NodeName] | None:
    for prefix in (_LOCAL, _SHARED):
        if pool.startswith(prefix):
            return prefix, NodeName(pool.removeprefix(prefix))
    return None


def _values(entry: Mapping[str, Any], driver: str) -> dict[str, Any]:
    return {
        key.removeprefix(f"{driver}/"): next(iter(union.values()), None)
        for key, union in (entry.get("attributes") or {}).items()
    }
