# SPDX-License-Identifier: Apache-2.0
"""Stable names of devices and of the ports they sit in.

Owns the rule who is called what (docs: design "Identity"). Pure: no I/O, no clock, no state;
what must be remembered (which serials were seen twice) comes in and goes out as a value.

A name is a DNS label:

- `usb-<vendor>-<product>-<serial>` where the serial is present and unique on the node. A serial
  of digits and capitals alone is used as it is, in lower case; any other gets a hash of its raw
  bytes, so that two serials that differ never give one name.
- `usb-<vendor>-<product>-port-<chain>-<hash>` otherwise. The hash is of node and port path: a
  path says nothing about identity on another node.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import NamedTuple

from usbdra.types import DeviceName, UsbDevice

MAX_LABEL = 63
_SERIAL_HASH, _PORT_HASH, _NODE_HASH = 10, 8, 6  # hex digits; lengths differ, so kinds cannot meet

_PLAIN_SERIAL = re.compile(rb"[0-9A-Z]+")
_NOT_LABEL = re.compile(rb"[^0-9a-z]+")
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ROOT_HUB = re.compile(r"usb[0-9]+")


class Identity(NamedTuple):
    """What makes a device the same device in another port."""

    vendor_id: str
    product_id: str
    serial: bytes


class Place(NamedTuple):
    """Where a device sits: controller directory below the root, root hub, port chain."""

    controller: str
    root_hub: str
    chain: str


@dataclass(frozen=True, slots=True)
class Naming:
    """Names by syspath, and every identity seen twice so far (to be remembered)."""

    names: Mapping[str, DeviceName]
    ambiguous: frozenset[Identity]


def identity_of(device: UsbDevice) -> Identity | None:
    """The identity, or None without a usable serial (none, empty, or only blanks and NULs)."""
    serial = device.serial_raw
    if serial is None or not serial.strip(b" \t\r\n\v\f\0"):
        return None
    return Identity(device.vendor_id, device.product_id, serial)


def place_of(syspath: str) -> Place | None:
    """Split `/sys/devices/.../<controller>/usb1/1-1/1-1.4`; None for a path of another shape."""
    parts = syspath.split("/")
    for index, part in enumerate(parts):
        if _ROOT_HUB.fullmatch(part):
            chain = parts[-1].partition("-")[2]
            return Place("/".join(parts[:index]), part, chain)
    return None


def controller_name(directory: str) -> str:
    """`pci-0000:00:14.0` for a PCI function, `platform-vhci_hcd.0` for anything else."""
    name = directory.rpartition("/")[2]
    return f"pci-{name}" if _PCI_ADDRESS.fullmatch(name) else f"platform-{name}"


def root_hub_label(root_hub: str, siblings: Mapping[str, bool]) -> str:
    """Which half of its controller a root hub is: `usb2-0` or `usb3-0`.

    `siblings` tells of each root hub of the controller whether it is 5 Gbit/s or more. The bus
    number only orders hubs of one kind, because it may change at every boot.
    """
    is_super = siblings.get(root_hub, False)
    alike = sorted((int(hub[3:]) for hub, fast in siblings.items() if fast == is_super))
    number = int(root_hub[3:])
    ordinal = alike.index(number) if number in alike else 0
    return f"usb{3 if is_super else 2}-{ordinal}"


def port_path(controller: str, hub_label: str, chain: str) -> str:
    """`pci-0000:00:14.0-usb2-0:1.4`; without a chain it is the root hub itself."""
    return f"{controller}-{hub_label}:{chain}" if chain else f"{controller}-{hub_label}"


def serial_name(identity: Identity) -> DeviceName:
    """The name that follows the device to any port and node."""
    stem = f"usb-{identity.vendor_id}-{identity.product_id}-"
    room = MAX_LABEL - len(stem)
    raw = identity.serial
    if _PLAIN_SERIAL.fullmatch(raw) and len(raw) <= room:
        return DeviceName(stem + raw.decode("ascii").lower())
    digest = _hash(raw, _SERIAL_HASH)
    # Never without a slug: the hyphen is what no plain serial can have.
    slug = _slug(raw, room - len(digest) - 1) or "x"
    return DeviceName(f"{stem}{slug}-{digest}")


def port_name(device: UsbDevice, node: str) -> DeviceName:
    """The name that says only where the device sits on this node."""
    stem = f"usb-{device.vendor_id}-{device.product_id}-port-"
    digest = _hash(f"{node}\0{device.port_path}".encode(), _PORT_HASH)
    slug = _slug(device.busid.partition("-")[2].encode(), MAX_LABEL - len(stem) - len(digest) - 1)
    return DeviceName(f"{stem}{slug}-{digest}" if slug else f"{stem}{digest}")


def choose_name(
    device: UsbDevice, *, node: str, alone: bool, held: DeviceName | None
) -> DeviceName:
    """The name of one device. `alone`: its identity was never seen twice on this node.

    A name held by a device in use stays, as long as it is one of this device's own names.
    """
    identity = identity_of(device)
    by_serial = serial_name(identity) if identity is not None else None
    by_port = port_name(device, node)
    if held is not None and held in (by_serial, by_port):
        return held
    return by_serial if by_serial is not None and alone else by_port


def assign_names(
    devices: Iterable[UsbDevice],
    *,
    node: str,
    ambiguous: Set[Identity] = frozenset(),
    held: Mapping[str, DeviceName] | None = None,
) -> Naming:
    """Name all devices of a node; the caller leaves out what is never offered.

    `held` maps syspath to the name under which a device is in use. An identity present twice
    becomes ambiguous for good: both go by port, so two alike never swap names.
    """
    found = list(devices)
    places: defaultdict[Identity, set[str]] = defaultdict(set)
    for device in found:
        identity = identity_of(device)
        if identity is not None:
            places[identity].add(device.syspath)
    twice = frozenset(i for i, paths in places.items() if len(paths) > 1) | frozenset(ambiguous)
    names = {
        d.syspath: choose_name(
            d, node=node, alone=identity_of(d) not in twice, held=(held or {}).get(d.syspath)
        )
        for d in found
    }
    return Naming(names, twice)


def cluster_name(name: DeviceName, node: str, taken_by: str | None) -> DeviceName:
    """A cluster-wide name: `name`, unless another node's device has it already.

    `taken_by` is the node whose present device holds `name`. The later node's device then gets
    a suffix made of its node alone, so neither ever renames the other (field report R31).
    """
    if taken_by is None or taken_by == node:
        return name
    suffix = f"-{_hash(node.encode(), _NODE_HASH)}"
    return DeviceName(name[: MAX_LABEL - len(suffix)].rstrip("-") + suffix)


def _slug(raw: bytes, room: int) -> str:
    """Lower-case letters, digits and single inner hyphens, at most `room` of them."""
    return _NOT_LABEL.sub(b"-", raw.lower()).decode("ascii").strip("-")[:room].strip("-")


def _hash(raw: bytes, digits: int) -> str:
    from hashlib import blake2b

    return blake2b(raw, digest_size=16).hexdigest()[:digits]
