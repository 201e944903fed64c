# SPDX-License-Identifier: Apache-2.0
"""The agent's records of resets that were asked for: each is carried out at most once.

Owns the shape of such a record and its version. Pure: the files are state/store.py's, one a
device. A record is written before the act; what is not `done` was interrupted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from usbdra.state.codec import decode, encode


@dataclass(frozen=True, slots=True)
class ResetRecord:
    """The last request for a device. `token` is its time, which is its word for itself."""

    token: str
    done: bool = False


class ResetSchema:
    """How these records look on disk (state/schema.py `Schema`)."""

    kind = "usbdra/reset"
    version = 1

    def encode(self, record: ResetRecord) -> dict[str, Any]:
        """The record as JSON values."""
        data: dict[str, Any] = encode(record)
        return data

    def decode(self, version: int, data: Mapping[str, Any]) -> ResetRecord:
        """The record from JSON values. Raises ValueError for what it does not understand."""
        record = decode(ResetRecord, dict(data), "reset")
        if datetime.fromisoformat(record.token).tzinfo is None:
            raise ValueError(f"reset.token is {record.token}, a time without its zone")
        return record
