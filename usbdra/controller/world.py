# SPDX-License-Identifier: Apache-2.0
"""What the controller knows of the cluster, indexed by device. No I/O.

Owns the objects as last seen and the indexes over them. Each change answers with the names of the
NodeUSBDevices it may matter to, so that a change costs a look at those and at nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from usbdra.controller import names, templates
from usbdra.controller.acts import Object, What
from usbdra.controller.assignment import Holding
from usbdra.controller.conditions import NodeState
from usbdra.controller.published import (
    Published,
    SlicePart,
    place_of,
    pool_devices,
    publisher,
)
from usbdra.controller.reconcile import Namespace, Observed
from usbdra.controller.uses import Use, uses
from usbdra.kube.custom import Contract
from usbdra.types import DeviceName, NodeName

K = TypeVar("K", bound=str)
Key = tuple[str, str]
"""(namespace or "", name)."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """How much of the cluster is ours: published devices by reach, nodes that publish,
    NodeUSBDevices, and those of them that are assigned."""

    reach: Mapping[str, int]
    nodes: int
    devices: int
    assigned: int


class World:
    """See the module. Every `put_...` with None stands for an object that went."""

    def __init__(self, contract: Contract, grace: timedelta) -> None:
        self._contract = contract
        self._grace = grace
        self._objects: dict[What, dict[Key, Object]] = {what: {} for what in What}
        self._nodes: dict[str, bool] = {}
        self._namespaces: dict[str, Namespace] = {}
        self._pools: dict[str, dict[str, SlicePart]] = {}
        self._pool_of: dict[str, str] = {}
        self._views: dict[str, dict[DeviceName, Published]] = {}
        self._present: dict[DeviceName, dict[NodeName, Published]] = {}
        self._own: dict[str, DeviceName] = {}
        self._claim_uses: dict[Key, tuple[Use, ...]] = {}
        self._used: dict[DeviceName, set[Key]] = {}
        self._family: dict[str, DeviceName] = {}
        self._families: dict[DeviceName, set[str]] = {}
        self._places: dict[str, set[tuple[What, str]]] = {}
        self._machines: dict[Key, dict[str, str]] = {}
        self._by_node: dict[str, set[str]] = {}
        self._by_namespace: dict[str, set[str]] = {}

    def get(self, what: What, key: Key) -> Object | None:
        """An object as last seen."""
        return self._objects[what].get(key)

    def count(self, what: What) -> int:
        """How many objects of a kind are known."""
        return len(self._objects[what])

    def put_slice(self, name: str, part: SlicePart | None) -> set[str]:
        """A ResourceSlice of our driver."""
        before = self._pool_of.pop(name, None)
        if before is not None:
            self._pools[before].pop(name)
        if part is not None:
            self._pool_of[name] = part.pool
            self._pools.setdefault(part.pool, {})[name] = part
        pools = {pool for pool in (before, part.pool if part else None) if pool}
        return {name for pool in pools for name in self._view(pool)}

    def put_node(self, name: str, ready: bool | None) -> set[str]:
        """A Node, or what stands for a host outside, and whether it is ready."""
        if ready is None:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = ready
        return set(self._by_node.get(name, ()))

    def put_namespace(self, name: str, found: Namespace | None) -> set[str]:
        """A Namespace."""
        if found is None:
            self._namespaces.pop(name, None)
        else:
            self._namespaces[name] = found
        return set(self._by_namespace.get(name, ()))

    def put(self, what: What, key: Key, new: Object | None) -> set[str]:
        """A NodeUSBDevice, USBDevice, ResourceClaim or ResourceClaimTemplate."""
        old = self._objects[what].get(key)
        if new is None:
            self._objects[what].pop(key, None)
        else:
            self._objects[what][key] = new
        if what is What.NODE_DEVICE:
            return self._put_node_device(key[1], old, new)
        if what is What.ATTACHMENT:
            return self._attach(key, old, new)
        affected = self._place(what, key, old, new)
        if what is What.CLAIM:
            affected |= self._use(key, new)
        return affected

    def numbers(self) -> Numbers:
        """How much there is of what."""
        found = self._objects[What.NODE_DEVICE].values()
        return Numbers(
            reach=Counter(
                one.reach.value for view in self._views.values() for one in view.values()
            ),
            nodes=len({publisher(pool) for pool in self._pools}),
            devices=len(found),
            assigned=sum(1 for item in found if (item.get("spec") or {}).get("assignedNamespace")),
        )

    def observe(self, name: str, now: datetime) -> Observed:
        """All that is known about one NodeUSBDevice's name."""
        record = self.get(What.NODE_DEVICE, ("", name))
        device_name = self._device_name(name, record)
        known = self._known(device_name)
        present = self._present.get(device_name, {})
        owners = names.owners(device_name, frozenset(present), known)
        device = next((present[node] for node, owner in owners.items() if owner == name), None)
        found = [
            use
            for key in self._used.get(device_name, ())
            for use in self._claim_uses[key]
            if use.device == device_name
            and names.owner_of_use(device_name, use.node, owners, known) == name
        ]
        last = device.node if device else place_of(_status(record))
        places = {namespace for _, namespace in self._places.get(name, ())}
        spaces = places | _namespaces_of(record)
        return Observed(
            name=name,
            now=now,
            contract=self._contract,
            grace=self._grace,
            record=record,
            device=device,
            node=self._node_state(last),
            namespaces={n: self._namespaces[n] for n in spaces if n in self._namespaces},
            holdings={n: self._holding(n, name) for n in spaces if self._holds(n, name, places)},
            uses=sorted(found, key=lambda use: (use.namespace, use.claim)),
            machines=dict(self._machines_of(found)),
        )

    def _view(self, pool: str) -> set[str]:
        """Take over a pool's newest whole state; the names of objects that this concerns."""
        devices = pool_devices(self._pools[pool].values())
        if devices is None:
            return set()
        before = self._views.get(pool, {})
        affected: set[str] = set()
        for name in before.keys() | devices.keys():
            old, new = before.get(name), devices.get(name)
            if old != new:
                affected |= self._publish(name, old, new)
        self._views[pool] = devices
        if not self._pools[pool]:
            del self._pools[pool], self._views[pool]
        return affected

    def _publish(self, name: DeviceName, old: Published | None, new: Published | None) -> set[str]:
        nodes = self._present.setdefault(name, {})
        affected = self._names(name)
        if new is not None:
            nodes[new.node] = new
            self._own[names.own_name(name, new.node)] = name
        elif old is not None and nodes.get(old.node) == old:  # else it moved to another pool
            del nodes[old.node]
            self._own.pop(names.own_name(name, old.node), None)
        affected |= self._names(name)
        if not nodes:
            del self._present[name]
        return affected

    def _names(self, device: DeviceName) -> set[str]:
        """Every object name that may stand for a device of this name now."""
        own = {names.own_name(device, node) for node in self._present.get(device, ())}
        return {str(device), *own, *self._families.get(device, ())}

    def _put_node_device(self, name: str, old: Object | None, new: Object | None) -> set[str]:
        _move(self._by_node, name, _nodes_of(old), _nodes_of(new))
        _move(self._by_namespace, name, _namespaces_of(old), _namespaces_of(new))
        was = self._family.pop(name, None)
        before = {was} if was else set()
        after = {self._device_name(name, new)} if new else set()
        for device in after:
            self._family[name] = device
        _move(self._families, name, before, after)
        if (was, _nodes_of(old)) == (self._family.get(name), _nodes_of(new)):
            return {name}
        return {name}.union(*(self._names(device) for device in before | after))

    def _place(self, what: What, key: Key, old: Object | None, new: Object | None) -> set[str]:
        """Ours under its name; somebody else's claim or template only where it is in our way."""
        namespace, name = key
        ours = new is not None and (what is What.DEVICE or templates.is_ours(new, self._contract))
        places = self._places.setdefault(name, set())
        was = (what, namespace) in places
        if ours:
            places.add((what, namespace))
        else:
            places.discard((what, namespace))
        blocks = (What.DEVICE, namespace) in places
        if not places:
            del self._places[name]
        return {name} if ours or was or blocks else set()

    def _use(self, key: Key, claim: Object | None) -> set[str]:
        new = uses(claim, self._contract.driver) if claim else ()
        old = self._claim_uses.pop(key, ())
        if new:
            self._claim_uses[key] = new
        if new == old:
            return set()
        before, after = {use.device for use in old}, {use.device for use in new}
        for device in before - after:
            self._used[device].discard(key)
            if not self._used[device]:
                del self._used[device]
        for device in after:
            self._used.setdefault(device, set()).add(key)
        return {name for device in before | after for name in self._names(device)}

    def _attach(self, key: Key, old: Object | None, new: Object | None) -> set[str]:
        """A USBAttachment: which pod holds a claim for which virtual machine, or `pod/NAME`."""
        for item in (old, new):
            holder = _status(item).get("holderName")
            spec = (item or {}).get("spec") or {}
            machine = str((spec.get("virtualMachine") or {}).get("name", ""))
            if spec.get("pod"):
                machine = f"pod/{spec['pod']['name']}"
            if holder and machine:
                held = self._machines.setdefault((key[0], str(holder)), {})
                held.pop(key[1], None)
                if item is new:
                    held[key[1]] = machine
                if not held:
                    del self._machines[key[0], str(holder)]
        return {str(item["spec"]["device"]) for item in (old, new) if item}

    def _machines_of(self, found: Iterable[Use]) -> Iterator[tuple[Key, str]]:
        for use in found:
            for pod in use.consumers:
                key = (use.namespace, pod.name)
                for machine in self._machines.get(key, {}).values():
                    yield key, machine

    def _device_name(self, name: str, record: Object | None) -> DeviceName:
        said = (_status(record).get("attributes") or {}).get("name")
        return DeviceName(str(said or self._own.get(name) or name))

    def _known(self, device: DeviceName) -> dict[str, str]:
        """The objects that exist for devices of this name, each with its node."""
        records = {
            name: self.get(What.NODE_DEVICE, ("", name)) for name in self._families.get(device, ())
        }
        return {name: place_of(_status(item)) for name, item in records.items()}

    def _node_state(self, node: str) -> NodeState:
        if node not in self._nodes:
            return NodeState.GONE
        return NodeState.READY if self._nodes[node] else NodeState.NOT_READY

    def _holding(self, namespace: str, name: str) -> Holding:
        key = (namespace, name)
        return Holding(
            self.get(What.DEVICE, key), self.get(What.CLAIM, key), self.get(What.TEMPLATE, key)
        )

    def _holds(self, namespace: str, name: str, places: Iterable[str]) -> bool:
        return namespace in places or self._holding(namespace, name) != Holding()


def _move(index: dict[K, set[str]], name: str, old: set[K], new: set[K]) -> None:
    for key in old - new:
        index[key].discard(name)
        if not index[key]:
            del index[key]
    for key in new - old:
        index.setdefault(key, set()).add(name)


def _status(item: Object | None) -> Mapping[str, Any]:
    return (item or {}).get("status") or {}


def _nodes_of(item: Object | None) -> set[str]:
    place = place_of(_status(item))
    return {place} if place else set()


def _namespaces_of(item: Object | None) -> set[str]:
    """The namespaces that a NodeUSBDevice names: wanted, and on record."""
    wanted = ((item or {}).get("spec") or {}).get("assignedNamespace")
    given = (_status(item).get("assignment") or {}).get("namespace")
    return {str(name) for name in (wanted, given) if name}
