# SPDX-License-Identifier: Apache-2.0
"""The exporter's records: which devices were taken from their drivers, and how far that came.

Owns the shape of such a record and its version. Pure: reading and writing the files is
state/store.py's work, one file a device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from usbdra.state.codec import decode, encode
from usbdra.types import BusId, Endpoints, NodeName
from usbdra.usbip.extension import ClaimRef


class ExportPhase(Enum):
    """How far an export has come. What is not BOUND was interrupted and is finished or undone."""

    BINDING = "binding"
    BOUND = "bound"
    RELEASING = "releasing"


@dataclass(frozen=True, slots=True)
class Session:
    """Who uses an exported device now.

    `key` is the broker's own, `holder` is for people. `claim` and `node` are what it was granted
    for and to whom, None without a cluster; `link` is there from the hand-over on.
    """

    key: str
    holder: str
    claim: ClaimRef | None = None
    node: NodeName | None = None
    link: Endpoints | None = None


@dataclass(frozen=True, slots=True)
class ExportRecord:
    """One device that we took from its driver.

    `identity` is `vendor:product:serial` at that time, so that another device on the same bus id
    is not taken for it. `drivers` maps the interfaces (`1-3:1.0`) to what drove them. `pinned`
    devices stay bound when a session ends. `session` is there from the grant on.
    """

    busid: BusId
    identity: str
    phase: ExportPhase
    drivers: Mapping[str, str]
    pinned: bool = False
    session: Session | None = None


class ExportSchema:
    """How export records look on disk (state/schema.py `Schema`)."""

    kind = "usbdra/export"
    version = 1

    def encode(self, record: ExportRecord) -> dict[str, Any]:
        """The record as JSON values."""
        data: dict[str, Any] = encode(record)
        return data

    def decode(self, version: int, data: Mapping[str, Any]) -> ExportRecord:
        """The record from JSON values. Raises ValueError for what it does not understand."""
        return decode(ExportRecord, dict(data), "export")
