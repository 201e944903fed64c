# SPDX-License-Identifier: Apache-2.0
"""Simulated nodes: Node objects without machines, and the slices their agents would publish.

Owns what devices there are and under which names. Slices are the product's own builder's, claims
are of the form that the controller gives an assigned device; every device is assigned to one
namespace, so that its slice carries the taint of that.
"""

from __future__ import annotations

import itertools

from bench.cluster.controlling import in_turns
from tests.api.chart import GROUP
from tests.api.devices import PORTS
from tests.unit.slices.samples import offer
from usbdra.controller.published import Published, read_slice
from usbdra.controller.templates import claim_spec
from usbdra.kube.client import KubeClient
from usbdra.kube.custom import Contract
from usbdra.kube.types import NODE, RESOURCE_CLAIM, RESOURCE_SLICE, Object
from usbdra.slices.build import SliceOptions, Taint, Visibility, build
from usbdra.slices.publish import Owner
from usbdra.types import Offer, Speed

NAMES = Contract(GROUP)
DEVICES = 8
SPACE = "scale"
PREFIX = "usb-0951-1666-"
"""Of the names of simulated devices."""


def node_name(number: int) -> str:
    """Of simulated node `number`."""
    return f"n{number:05d}"


def stick(number: int, index: int | str) -> Offer:
    """One device of a node; every other one needs the hub for super speed."""
    odd = isinstance(index, int) and index % 2
    serial = f"{number:05d}x{index}"
    speed = Speed.SUPER if odd else Speed.HIGH
    return offer(f"{PREFIX}{serial}", serial=serial.upper(), speed=speed)


def slices(number: int, visibility: Visibility, *more: Offer) -> list[Object]:
    """What the node's agent publishes; `more` were plugged in just now."""
    found = [*(stick(number, index) for index in range(DEVICES)), *more]
    taint = Taint(NAMES.key("assigned"), SPACE)
    options = SliceOptions(
        node=node_name(number),
        visibility=visibility,
        taints={each.name: [taint] for each in found},
    )
    return build(found, PORTS, options)


def devices(number: int, visibility: Visibility) -> list[Published]:
    """The node's devices, as the controller reads them."""
    parts = (read_slice(item, NAMES.driver) for item in slices(number, visibility))
    return [device for part in parts for device in part.devices]


class Population:
    """The nodes there are; grows only. `visibility` is what their slices say now."""

    def __init__(self, admin: KubeClient) -> None:
        self.nodes = 0
        self.visibility = Visibility.NODE
        self._admin = admin
        self._new = itertools.count()
        self._owners: dict[int, Owner] = {}

    async def grow(self, nodes: int) -> None:
        """Make it so many nodes, each with its slices and its devices' shared claims."""
        new = range(self.nodes, nodes)
        await in_turns(self._add(number) for number in new)
        await in_turns(self._claim(device) for n in new for device in devices(n, self.visibility))
        self.nodes = nodes

    async def show(self, visibility: Visibility) -> None:
        """Make the devices' slices of all nodes anew: who sees one cannot be changed."""
        self.visibility = visibility
        await in_turns(self._anew(number) for number in range(self.nodes))

    def new_stick(self, number: int) -> Offer:
        """For a node, one that was never there."""
        return stick(number, f"new{next(self._new)}")

    async def publish(self, number: int, *more: Offer) -> None:
        """One node's devices, `more` of them new, in one write, as its agent would."""
        owned = self._devices(number, *more)
        stored = await self._admin.get(RESOURCE_SLICE, owned["metadata"]["name"])
        owned["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
        owned["spec"]["pool"]["generation"] = stored["spec"]["pool"]["generation"] + 1
        await self._admin.replace(RESOURCE_SLICE, owned)

    def _devices(self, number: int, *more: Offer) -> Object:
        """The one slice that holds a node's devices."""
        found = slices(number, self.visibility, *more)
        (item,) = (i for i in found if i["spec"]["pool"]["name"] == f"usb-{node_name(number)}")
        return self._owners[number].own(item)

    async def _anew(self, number: int) -> None:
        owned = self._devices(number)
        await self._admin.delete(RESOURCE_SLICE, owned["metadata"]["name"])
        await self._admin.create(RESOURCE_SLICE, owned)

    async def _add(self, number: int) -> None:
        name = node_name(number)
        made = await self._admin.create(NODE, _node(name))
        owner = self._owners[number] = Owner(name, made["metadata"]["uid"], NAMES.driver)
        for item in slices(number, self.visibility):
            await self._admin.create(RESOURCE_SLICE, owner.own(item))

    async def _claim(self, device: Published) -> None:
        await self._admin.create(RESOURCE_CLAIM, claim(device), SPACE)


def claim(device: Published) -> Object:
    """The claim of an assigned device, in the form that its visibility wants.

    The name is not the one that the controller would give it: it may do so beside this one.
    """
    name = f"{device.name}-{device.reach.value.lower()}"
    return {"metadata": {"name": name}, "spec": claim_spec(device, SPACE, NAMES)}


class Unused:
    """Devices that no claim was allocated for yet, far from each other."""

    def __init__(self) -> None:
        self._used: set[tuple[int, int]] = set()

    def take(self, nodes: int, count: int) -> list[tuple[int, int]]:
        """`count` pairs (node, device) among so many nodes. Raises ValueError for too many."""
        free = [
            pair
            for step in range(nodes * DEVICES)
            if (pair := (step * 7919 % nodes, step // nodes)) not in self._used
        ]
        if len(free) < count:
            raise ValueError(f"{nodes} nodes have no {count} devices left")
        self._used.update(free[:count])
        return free[:count]


def _node(name: str) -> Object:
    room = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "Fake", "message": "no machine"}
    labels = {"kubernetes.io/hostname": name, NAMES.key("usbip"): "true"}
    status = {"capacity": room, "allocatable": room, "conditions": [ready]}
    return {"metadata": {"name": name, "labels": labels}, "status": status}
