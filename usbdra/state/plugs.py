# SPDX-License-Identifier: Apache-2.0
"""The agent's records of devices that may be plugged into machines or containers of this node.

Owns the shape of such a record and its version. Pure: reading and writing the files is
state/store.py's work, one file a claim. A record is written before a machine is touched, and goes
when the machine has given the device back or is gone; whether the device is plugged in now, the
machine itself knows (hotplug/qemu.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from usbdra.state.codec import decode, encode
from usbdra.types import ClaimUid


@dataclass(frozen=True, slots=True)
class PlugNode:
    """A device node in a container, and the name of the link to it."""

    name: str
    path: str
    major: int
    minor: int
    block: bool = False


@dataclass(frozen=True, slots=True)
class PlugRecord:
    """One device of one claim, and the one machine or container it may be in.

    `attachment` is the UID of the USBAttachment `namespace`/`name`; `pod` the UID of the consumer's
    pod. For a machine `socket` is VOLUME/PATH of its QMP socket; for a container `container` is the
    runtime's identifier and `nodes` are the device's, which go with it.
    """

    claim: ClaimUid
    namespace: str
    name: str
    attachment: str
    pod: str
    socket: str = ""
    container: str = ""
    nodes: tuple[PlugNode, ...] = ()

    @property
    def directory(self) -> str:
        """Where a container finds its links."""
        return f"/dev/usbdra/{self.name}"


class PlugSchema:
    """How plug records look on disk (state/schema.py `Schema`)."""

    kind = "usbdra/plug"
    version = 1

    def encode(self, record: PlugRecord) -> dict[str, Any]:
        """The record as JSON values."""
        data: dict[str, Any] = encode(record)
        return data

    def decode(self, version: int, data: Mapping[str, Any]) -> PlugRecord:
        """The record from JSON values. Raises ValueError for what it does not understand."""
        if version != self.version:
            raise ValueError(f"there is no way up from version {version}")
        return decode(PlugRecord, dict(data), "plug")
