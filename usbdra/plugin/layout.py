# SPDX-License-Identifier: Apache-2.0
"""What a container finds of its devices: names of links, of environment variables, of paths.

Owns the naming contract (docs/claims.md). Pure. Names depend on the device's interfaces
and never on today's numbers, so they survive a lost link and another attach.

    /dev/usbdra/<request>/device -> /dev/bus/usb/005/002
    /dev/usbdra/<request>/tty0   -> /dev/ttyACM3
    USBDRA_<REQUEST>_DEVICE=/dev/usbdra/<request>/device

A request for several devices has a directory for each, 0, 1, ...; `_claim/<name>/<request>`
holds the same again for pods with two claims whose requests have one name (no request's name
has an underscore).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from usbdra.plugin.config import DeviceConfig, from_record
from usbdra.state.claims import ClaimRef, DeviceRecord, Held
from usbdra.types import ChildNode

CONTAINER_ROOT = PurePosixPath("/dev/usbdra")
DEVICE_LINK = "device"

_NUMBER = re.compile(r"(\d+)")
_SOUND = re.compile(r"(control|pcm|midi|hw|seq|timer)C\d+(.*)")
_SHORT = {"video4linux": "video", "usbmisc": "printer"}


@dataclass(frozen=True, slots=True)
class NodeLink:
    """A device node that the container gets, and the name of the stable link to it."""

    name: str
    path: str
    major: int
    minor: int
    block: bool = False


def settings(device: DeviceRecord) -> DeviceConfig:
    """The parameters of a recorded device. Raises ValueError when the record is damaged."""
    return from_record(device.config)


def node_links(device: DeviceRecord) -> tuple[NodeLink, ...]:
    """The nodes of a held device its parameters ask for, the device itself first."""
    held = device.held
    if held is None:
        return ()
    node = held.node
    own = NodeLink(DEVICE_LINK, node.path, node.major, node.minor)
    return (own, *_child_links(held, settings(device).kinds))


def _child_links(held: Held, kinds: frozenset[str]) -> Iterator[NodeLink]:
    wanted = sorted((c for c in held.children if c.kind in kinds), key=_order)
    numbers: Counter[str] = Counter()
    disks: dict[str, str] = {}
    for child in wanted:
        base = PurePosixPath(child.path).name
        name = _named_by_itself(child, base, disks)
        if name is None:
            kind = _SHORT.get(child.kind, child.kind)
            name = f"{kind}{numbers[kind]}"
            numbers[kind] += 1
            disks[base] = name
        yield NodeLink(name, child.path, child.major, child.minor, child.kind == "block")


def _named_by_itself(child: ChildNode, base: str, disks: dict[str, str]) -> str | None:
    """The name that follows from the node's own, without its numbers: sound and partitions."""
    sound = _SOUND.fullmatch(base) if child.kind == "sound" else None
    if sound:
        return f"sound-{sound[1]}{sound[2]}"
    if child.kind == "block":
        for disk, name in disks.items():
            part = re.fullmatch(rf"{re.escape(disk)}p?(\d+)", base)
            if part:
                return f"{name}-part{part[1]}"
    return None


def _order(child: ChildNode) -> tuple[str, int, list[tuple[int, str]]]:
    """By kind and interface, then as people count: sda2 before sda10, sda before sda1."""
    pieces = [(int(p), "") if p.isdigit() else (-1, p) for p in _NUMBER.split(child.path) if p]
    return (child.kind, -1 if child.interface is None else child.interface, pieces)


def container_dirs(ref: ClaimRef, device: DeviceRecord) -> tuple[PurePosixPath, PurePosixPath]:
    """Where the request's directory is seen in the container: short, and by claim."""
    request = device.base_request
    by_claim = CONTAINER_ROOT / "_claim" / (ref.pod_claim_name or ref.name) / request
    return CONTAINER_ROOT / request, by_claim


def subdirectory(device: DeviceRecord) -> str:
    """The device's own directory below its request's; empty when it is the only one."""
    return str(device.slot) if device.slots > 1 else ""


def environment(device: DeviceRecord) -> list[str]:
    """`NAME=value` for the container: stable paths first, then what the device is."""
    prefix = settings(device).env_prefix or f"USBDRA_{device.base_request}"
    if device.slots > 1:
        prefix = f"{prefix}_{device.slot}"
    directory = CONTAINER_ROOT / device.base_request / subdirectory(device)
    values: dict[str, str] = {"NAME": device.name}
    links = node_links(device)
    if links:
        values["DIR"] = str(directory)
        values["NODE"] = links[0].path
    values |= {link.name: str(directory / link.name) for link in links}
    identity = device.held.identity if device.held else device.identity
    if identity:
        values |= {"VENDOR_ID": identity.vendor_id, "PRODUCT_ID": identity.product_id}
        if identity.serial and identity.serial.isprintable():
            values["SERIAL"] = identity.serial
    return [f"{_variable(prefix, key)}={value}" for key, value in values.items()]


def _variable(prefix: str, key: str) -> str:
    return re.sub(r"[^A-Z0-9_]", "_", f"{prefix}_{key}".upper())
