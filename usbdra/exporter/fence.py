# SPDX-License-Identifier: Apache-2.0
"""Whether a device may be used from a namespace, by what an administrator assigned. Pure.

Owns the decision and its text; it is the last word on the node that has the device, and the only
one on servers without device taints. A text that a user may read never says which other
namespace a device belongs to. Must not do I/O.
"""

from __future__ import annotations

from collections.abc import Callable

from usbdra.errors import Refused
from usbdra.types import DeviceName

Allowed = Callable[[DeviceName, str], None]
"""Raises Refused when a claim of this namespace may not have this device of ours."""


def no_fence(device: DeviceName, namespace: str) -> None:
    """Where nobody assigns devices, every namespace may have them."""


def require(device: DeviceName, namespace: str, assigned: str | None, *, required: bool) -> None:
    """Return when a claim of this namespace may have the device. Raises Refused.

    assigned: the namespace that the device is assigned to, "" for none, None when nobody has
    said yet. required: whether a device must be assigned at all.
    """
    if assigned is None:
        raise Refused(
            f"device {device}: it is not known yet which namespace may use it; is usbdra "
            "controller running?"
        )
    if assigned and assigned != namespace:
        raise Refused(f"device {device} is assigned to another namespace than {namespace}")
    if not assigned and required:
        raise Refused(
            f"device {device} is not assigned to a namespace, and this cluster requires it: set "
            "spec.assignedNamespace of its NodeUSBDevice"
        )
