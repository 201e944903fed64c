# SPDX-License-Identifier: Apache-2.0
"""What the store needs to know of a kind of record.

Owns the contract only; the kinds are in exports.py and claims.py. A record is decoded strictly,
because a half-understood record leads to acts on the wrong device.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

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
