# SPDX-License-Identifier: Apache-2.0
"""What `explain` knows of the cluster: plain values, as far as the caller may see it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from usbdra.cli.kubectl import drains
from usbdra.controller.hubs import HubUse
from usbdra.controller.published import Reach, place_of, read_slice
from usbdra.kube.custom import Contract

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """One published device: who can select it, and what a claim must tolerate for it."""

    reach: Reach
    taints: tuple[Object, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """The cluster. None stands for what the caller may not see; nothing is concluded from it."""

    contract: Contract
    devices: Mapping[str, Object]
    """NodeUSBDevices by name; USBDevices of the namespace for who may not see those."""
    claims: Sequence[Object]
    hubs: Sequence[HubUse] | None = None
    """Every node's."""
    published: Mapping[tuple[str, str], Seen] | None = None
    """By (a device's name on its node, node)."""
    classes: Mapping[str, Object] | None = None
    """DeviceClasses by name."""
    nodes: Mapping[str, Object] | None = None
    """The node that the pod must run on, by its name, if it is there."""
    warnings: Mapping[str, str] | None = None
    """The last warning told of a claim of the namespace, `REASON: text`, by the claim's name."""

    @property
    def driver(self) -> str:
        """The DRA driver's name."""
        return self.contract.driver


def published(
    slices: Iterable[Object], driver: str, rules: Iterable[Object] = ()
) -> dict[tuple[str, str], Seen]:
    """What slices and taint rules say of each device, by its name and node; of every generation,
    the last read."""
    found: dict[tuple[str, str], Seen] = {}
    drained = drains.drained(rules, driver)
    for item in slices:
        of_pool = drained.get(item["spec"]["pool"]["name"], ())
        taints = {
            entry["name"]: tuple(entry.get("taints") or ())
            for entry in item["spec"].get("devices") or ()
        }
        for device in read_slice(item, driver).devices:
            found[device.name, device.node] = Seen(device.reach, (*taints[device.name], *of_pool))
    return found


def attributes(record: Object) -> dict[str, Any]:
    """What a device's object says of the device, under the names that selectors use."""
    status = record.get("status") or {}
    said = dict(status.get("attributes") or {})
    node = said.get("nodeName") or place_of(status)
    return {**said, "node": node} if node else said


def place(record: Object) -> tuple[str, str]:
    """(the device's name on its node, the node), empty texts where they are not known."""
    said = attributes(record)
    return str(said.get("name", "")), str(said.get("node", ""))


def assigned_to(record: Object) -> str:
    """The namespace that may use the device; "" for none."""
    own = record["metadata"].get("namespace")
    return str(own or (record.get("spec") or {}).get("assignedNamespace") or "")
