# SPDX-License-Identifier: Apache-2.0
"""What the published devices are: the plugin's DeviceView on our snapshot and the API.

Own devices come from the node's snapshot; another node's from its slices, so that no agent
watches what is not its own. They are read by their names: a list, also of one node's slices,
waits until the server's cache has caught up with etcd, some 80 ms in a cluster that writes
anything meanwhile (cacher.go, ConsistentListFromCache). Must not keep what it read: an answer
from a moment ago is not proof of anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from usbdra.discovery.snapshot import Snapshot
from usbdra.kube import errors
from usbdra.kube.types import RESOURCE_SLICE
from usbdra.kube.verbs import Gets
from usbdra.plugin.config import Target
from usbdra.plugin.contracts import DirectFact, Fact, UsbFact, VhciFact
from usbdra.slices.build import parse_link, slice_name
from usbdra.state.claims import Identity
from usbdra.types import DeviceName, Hub, NodeName, Offer, Speed, is_node

POOLS = ("usblocal", "usblink", "usb")
"""Pool prefixes of slices/build.py."""

MAX_SLICES = 64
"""Of a pool that are read for one device; a node with as many has 4,096 devices or more."""


class PublishedDevices:
    """See contracts.DeviceView."""

    def __init__(
        self, api: Gets, driver: str, node: NodeName, snapshot: Callable[[], Snapshot]
    ) -> None:
        self._api = api
        self._driver = driver
        self._node = node
        self._snapshot = snapshot

    async def lookup(self, pool: str, device: str) -> Fact | None:
        """The fact behind one entry of our driver's slices; None when it is not published."""
        split = _split(pool)
        if split is None:
            return None
        prefix, node = split
        if prefix == "usblink":
            return _link(node, device)
        if node == self._node:
            return self._own(DeviceName(device))
        return _remote(device, node, self._driver, await self._entry(pool, device))

    async def find(self, target: Target) -> UsbFact | None:
        """The device that parameters name, wherever it is; None when nothing is known of it."""
        if target.node == self._node:
            return self._own(target.name)
        pools = (f"usb-{target.node}", f"usblocal-{target.node}")
        for pool in pools if is_node(target.node) else pools[:1]:
            entry = await self._entry(pool, target.name)
            fact = _remote(target.name, target.node, self._driver, entry)
            if fact is not None:
                return fact
        return None

    def owner(self, pool: str) -> NodeName | None:
        """The node whose devices or ports a pool holds; None for a pool that is not ours."""
        split = _split(pool)
        return split[1] if split else None

    def _own(self, name: DeviceName) -> UsbFact | None:
        offer = next((o for o in self._snapshot().offers if o.name == name), None)
        return own_fact(offer, self._node) if offer else None

    async def _entry(self, pool: str, device: str) -> Mapping[str, Any] | None:
        number, count = 0, 1
        while number < count:
            try:
                name = slice_name(pool, number, self._driver)
                spec = (await self._api.get(RESOURCE_SLICE, name))["spec"]
            except errors.ApiNotFound:
                return None
            if spec["driver"] != self._driver or spec["pool"]["name"] != pool:
                return None
            for entry in spec.get("devices") or ():
                if entry["name"] == device:
                    return dict(entry)
            number, count = number + 1, min(spec["pool"]["resourceSliceCount"], MAX_SLICES)
        return None


def _link(node: NodeName, device: str) -> Fact | None:
    link = parse_link(device)
    if link is None:
        return None
    return VhciFact(node, link) if isinstance(link, Hub) else DirectFact(node)


def own_fact(offer: Offer, node: NodeName) -> UsbFact:
    """A device of this node as the plugin plans with it."""
    device = offer.device
    return UsbFact(
        name=offer.name,
        node=node,
        speed=device.speed,
        identity=Identity(device.vendor_id, device.product_id, device.serial),
        usable=offer.usable,
        exportable=offer.exportable,
        reason=offer.reason,
    )


def _split(pool: str) -> tuple[str, NodeName] | None:
    for prefix in POOLS:
        if pool.startswith(f"{prefix}-"):
            return prefix, NodeName(pool[len(prefix) + 1 :])
    return None


def _remote(
    name: str, node: NodeName, driver: str, entry: Mapping[str, Any] | None
) -> UsbFact | None:
    """A published device of another node. Published in a shared pool means exportable."""
    if entry is None:
        return None
    values = _values(entry, driver)
    if values.get("kind") != "usb":
        return None
    return UsbFact(
        name=DeviceName(name),
        node=node,
        speed=_speed(values.get("speed")),
        identity=Identity(
            str(values.get("vendorID", "")),
            str(values.get("productID", "")),
            # A published serial may be shortened, and then proves nothing letter by letter; the
            # exporter, which has the whole one, says at the grant which device it gives.
            None,
        ),
    )


def _values(entry: Mapping[str, Any], driver: str) -> dict[str, Any]:
    """Attributes with their union unpacked, our driver's prefix (if written out) removed."""
    values = {}
    for key, union in (entry.get("attributes") or {}).items():
        values[key.removeprefix(f"{driver}/")] = next(iter(union.values()))
    return values


def _speed(mbit: object) -> Speed:
    """The speed from the published whole Mbit/s (1.5 is published as 1)."""
    return next((s for s in Speed if s.mbit_text.partition(".")[0] == str(mbit)), Speed.UNKNOWN)
