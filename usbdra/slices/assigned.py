# SPDX-License-Identifier: Apache-2.0
"""What a NodeUSBDevice says of its device, and the taint that keeps other namespaces away. Pure.

Owns the fence as slices have it, for devices of nodes and of hosts outside the cluster alike. The
last word at the device is exporter/fence.py's.
"""

from __future__ import annotations

from usbdra.kube.custom import Contract
from usbdra.kube.types import Object
from usbdra.slices.build import Taint
from usbdra.types import DeviceName


def device_name(item: Object) -> DeviceName:
    """The device's name where it is plugged in; the object's own may have an ending more."""
    attributes = (item.get("status") or {}).get("attributes") or {}
    return DeviceName(attributes.get("name") or item["metadata"]["name"])


def assigned_to(item: Object) -> str:
    """The namespace that may use the device, "" for none."""
    return (item.get("spec") or {}).get("assignedNamespace") or ""


def taints(names: Contract, assigned: str | None, *, required: bool) -> tuple[Taint, ...]:
    """assigned: as exporter/fence.py has it, None when nobody has said yet. required: whether a
    device must be assigned at all."""
    if assigned:
        return (Taint(names.key("assigned"), assigned),)
    if assigned is None or required:
        return (Taint(names.key("unassigned"), ""),)
    return ()
