# SPDX-License-Identifier: Apache-2.0
"""What a decision may ask for: writes to the API, as values.

Pure. Each act can be repeated and can be the last one before a crash.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

Object = dict[str, Any]


class What(Enum):
    """The kinds that decisions are about."""

    NODE_DEVICE = "NodeUSBDevice"
    DEVICE = "USBDevice"
    CLAIM = "ResourceClaim"
    TEMPLATE = "ResourceClaimTemplate"
    POD = "Pod"
    ATTACHMENT = "USBAttachment"
    MACHINE = "VirtualMachine"


@dataclass(frozen=True, slots=True)
class Apply:
    """Server-side apply. `force` False: a field of somebody else's is a conflict, not ours."""

    what: What
    body: Object
    namespace: str | None = None
    subresource: str = ""
    force: bool = True


@dataclass(frozen=True, slots=True)
class Create:
    """Make an object that must not be there yet."""

    what: What
    body: Object
    namespace: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete this very object."""

    what: What
    name: str
    uid: str
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class Patch:
    """Merge patch on somebody else's fields; its resourceVersion makes it fail on any change."""

    what: What
    name: str
    patch: Object
    namespace: str | None = None


Act = Apply | Create | Delete | Patch


@dataclass(frozen=True, slots=True)
class Decision:
    """Acts in their order, and in how many seconds to decide again without news (None: never)."""

    acts: tuple[Act, ...] = ()
    again: float | None = None
