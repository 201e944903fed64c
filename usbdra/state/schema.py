# SPDX-License-Identifier: Apache-2.0
"""The shapes of our records and how each version of them is read.

Owns encoding and decoding between dataclasses and JSON values. Pure: no files here. A record is
decoded strictly, because a half-understood record leads to acts on the wrong device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeVar

from usbdra.types import BusId

T = TypeVar("T")


class Schema(Protocol[T]):
    """One kind of record. `version` is written; `decode` reads every version up to it."""

    @property
    def kind(self) -> str:
        """The word that tells this kind of file from every other."""

    @property
    def version(self) -> int:
        """The version that `encode` gives."""

    def encode(self, record: T) -> Mapping[str, Any]:
        """The record as JSON values."""

    def decode(self, version: int, data: Mapping[str, Any]) -> T:
        """The record from JSON values. Raises ValueError for what it does not understand."""


class ExportPhase(Enum):
    """How far an export has come. What is not BOUND was interrupted and is finished or undone."""

    BINDING = "binding"
    BOUND = "bound"
    RELEASING = "releasing"


@dataclass(frozen=True, slots=True)
class Session:
    """Who uses an exported device now. `key` is the broker's own, `holder` is for people."""

    key: str
    holder: str


@dataclass(frozen=True, slots=True)
class ExportRecord:
    """One device that we took from its driver.

    `identity` is `vendor:product:serial` at that time, so that another device on the same bus id
    is not taken for it. `drivers` maps the interfaces (`1-3:1.0`) to what drove them. `pinned`
    devices stay bound when a session ends. `session` is there from the hand-over on.
    """

    busid: BusId
    identity: str
    phase: ExportPhase
    drivers: Mapping[str, str]
    pinned: bool = False
    session: Session | None = None


class ExportSchema:
    """ExportRecord as JSON, version 1."""

    kind = "usbdra/export"
    version = 1

    def encode(self, record: ExportRecord) -> Mapping[str, Any]:
        """See Schema."""
        session = record.session
        return {
            "busid": record.busid,
            "identity": record.identity,
            "phase": record.phase.value,
            "drivers": dict(record.drivers),
            "pinned": record.pinned,
            "session": None if session is None else {"key": session.key, "holder": session.holder},
        }

    def decode(self, version: int, data: Mapping[str, Any]) -> ExportRecord:
        """See Schema."""
        session = data.get("session")
        drivers = field(data, "drivers", dict)
        if not all(isinstance(item, str) for pair in drivers.items() for item in pair):
            raise ValueError("drivers: names expected")
        return ExportRecord(
            busid=BusId(field(data, "busid", str)),
            identity=field(data, "identity", str),
            phase=ExportPhase(field(data, "phase", str)),
            drivers=drivers,
            pinned=field(data, "pinned", bool),
            session=None
            if session is None
            else Session(field(session, "key", str), field(session, "holder", str)),
        )


def field(data: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """A member of exactly this type. Raises ValueError that names it."""
    value = data.get(name) if isinstance(data, Mapping) else None
    if type(value) is not kind:
        raise ValueError(f"{name}: {kind.__name__} expected, found {value!r:.60}")
    return value
