# SPDX-License-Identifier: Apache-2.0
"""What the page is told of each object of the API: one small row, or nothing. Pure.

Owns the form of rows, the contract with files/*.js. Texts of devices are passed on as they are:
the page shows text as text, never as markup.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from usbdra.controller import hubs, links
from usbdra.controller.published import node_of, place_of, read_slice
from usbdra.controller.uses import uses

Object = Mapping[str, Any]
Row = dict[str, Any]
Reader = Callable[[Object], Row | None]

DEVICES, SLICES, CLAIMS, NAMESPACES = "devices", "slices", "claims", "namespaces"
_TEXTS = ("name", "vendorID", "productID", "manufacturer", "product", "serial", "speed")
_PLACE = ("busID", "portPath", "speed")


def readers(driver: str) -> dict[str, Reader]:
    """The reader of each section."""
    return {
        DEVICES: device,
        SLICES: lambda item: published(item, driver),
        CLAIMS: lambda item: claim(item, driver),
        NAMESPACES: namespace,
    }


def device(item: Object) -> Row:
    """A NodeUSBDevice: where it is, what it is, who may use it, and how it does."""
    status = item.get("status") or {}
    said = status.get("attributes") or {}
    states = {
        str(c["type"]): {key: str(c.get(key, "")) for key in ("status", "reason", "message")}
        for c in status.get("conditions") or ()
    }
    return {
        "node": place_of(status),
        "namespace": str((item.get("spec") or {}).get("assignedNamespace") or ""),
        "is": {key: said[key] for key in _TEXTS if key in said},
        "states": states,
    }


def published(item: Object, driver: str) -> Row | None:
    """A ResourceSlice: a node's devices and the ports they are in, or its hubs."""
    links_of = hubs.node_of_links(item)
    if links_of:
        ports = {hub: count for (_, hub), count in hubs.ports_of_slice(item).items()}
        return {"node": links_of, "hubs": ports}
    part = read_slice(item, driver)
    node = node_of(part.pool)
    if node is None:
        return None
    places = {
        str(found.name): {key: found.attributes[key] for key in _PLACE if key in found.attributes}
        for found in part.devices
    }
    return {"node": node, "devices": places}


def claim(item: Object, driver: str) -> Row | None:
    """A ResourceClaim that has something of ours: devices, ports, and what links carry."""
    found = uses(item, driver)
    ports = [list(hub) for hub in hubs.ports_of_claim(item, driver)]
    if not found and not ports:
        return None
    return {
        "node": links.node_of(item.get("status") or {}),
        "ports": ports,
        "links": [dict(link.data) for link in links.of_claim(item, driver)],
        "uses": [
            {
                "device": str(use.device),
                "node": str(use.node),
                "state": use.reason or "Allocated",
                "message": use.message,
                "pods": [pod.name for pod in use.consumers],
            }
            for use in found
        ],
    }


def namespace(item: Object) -> Row | None:
    """A Namespace that can be given devices: one that is not on its way out."""
    return None if item["metadata"].get("deletionTimestamp") else {}
