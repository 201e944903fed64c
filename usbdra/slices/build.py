# SPDX-License-Identifier: Apache-2.0
"""From a node's offers and free ports to the ResourceSlices it publishes.

Owns pools and device entries; their attributes are attributes.py's. Pure: the same input gives
the same output in the same order, so a publisher can compare and write only what changed. Must
not talk to anyone; publishing is another module's work.

A node has up to three pools, named so that no driver or node shares one:

- `usb-<node>`: its devices, seen by every node that can import (visibility Cluster) or by
  itself only (Node);
- `usblocal-<node>`: devices that policy keeps on their node, in slices of their own with
  `nodeName`, because a pool that mixes node selections makes the scheduler read every slice;
- `usblink-<node>`: how a device is reached from this node, directly or over a vhci hub.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from usbdra.errors import ConfigError
from usbdra.slices import limits
from usbdra.slices.attributes import attributes, node_value, typed_attributes
from usbdra.types import DeviceName, Hub, Offer, outside_host

DEFAULT_GROUP = "virtualization.deckhouse.io"
API_VERSION = "resource.k8s.io/v1"
DIRECT = "direct"
"""The link device that stands for `plugged into this node`."""

_LINK = re.compile(rf"(?:{DIRECT}|vhci-({'|'.join(hub.value for hub in Hub)}))(?:-[0-9]+)?")

Manifest = dict[str, Any]
"""One API object as it goes to JSON or YAML."""


class Visibility(Enum):
    """Which nodes' pods may select a device of this node (kubernetes cost: docs/operations.md)."""

    CLUSTER = "Cluster"
    NODE = "Node"


class Layout(Enum):
    """How ports are published.

    HUB counts them as a capacity of one device per hub (Kubernetes 1.36 and later); PORTS
    publishes one device per port and works everywhere.
    """

    HUB = "hub"
    PORTS = "ports"


@dataclass(frozen=True, slots=True)
class Taint:
    """A device taint; `effect` is NoSchedule, NoExecute or None (Kubernetes KEP 5055).

    An empty value is left out, as the API server does.
    """

    key: str
    value: str
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class SliceOptions:
    """What of the cluster the slices depend on. Raises ConfigError for names no API takes."""

    node: str
    group: str = DEFAULT_GROUP
    visibility: Visibility = Visibility.CLUSTER
    layout: Layout = Layout.HUB
    generation: int = 1
    taints: Mapping[DeviceName, Sequence[Taint]] = field(default_factory=dict)
    """Taints by device name."""

    def __post_init__(self) -> None:
        if not limits.is_dns_subdomain(f"usblocal-{self.node}"):
            raise ConfigError(f"node name {self.node!r} is not a Kubernetes node name")
        if not limits.is_dns_subdomain(self.group) or len(self.driver) > limits.MAX_DRIVER_LENGTH:
            raise ConfigError(
                f"API group {self.group!r} is not a DNS name of at most "
                f"{limits.MAX_DRIVER_LENGTH - len('usb.')} characters"
            )

    @property
    def driver(self) -> str:
        """The DRA driver name, `usb.<group>`."""
        return f"usb.{self.group}"


def build(
    offers: Iterable[Offer], free_ports: Mapping[Hub, int], options: SliceOptions
) -> list[Manifest]:
    """The node's ResourceSlices, in name order.

    offers: the node's snapshot; what is not usable is left out, what is not exportable stays
    local. free_ports: per hub, the ports claims may use: all but those that are broken or in
    foreign hands. A device with a name no slice takes, or a name seen before, is left out and
    costs the others nothing.
    """
    shared: list[Offer] = []
    local: list[Offer] = []
    for offer in _publishable(offers):
        far = offer.exportable or options.visibility is Visibility.NODE
        (shared if far else local).append(offer)
    here = {"nodeName": options.node}
    links = _links(options, [*shared, *local], free_ports)
    return [
        *_pool("usb", [_device(o, options) for o in shared], _selection(options), options),
        *_pool("usblink", links, here, options),
        *_pool("usblocal", [_device(o, options) for o in local], here, options),
    ]


def parse_link(name: str) -> Hub | str | None:
    """What a device of the pool `usblink-<node>` stands for: a hub, or DIRECT; None for neither.

    From the name alone: it was published when the scheduler took it, and may not be any more.
    """
    match = _LINK.fullmatch(name)
    return None if match is None else Hub(match[1]) if match[1] else DIRECT


def slice_name(pool: str, number: int, driver: str) -> str:
    """Of the slice with this number of a pool, 0 and up; the same for ever.

    Names are cluster-wide over all drivers; three digits keep a pool's slices in order. The pool
    of a host outside the cluster has a / in its name, its slices begin as no node's do.
    """
    host = outside_host(pool.removeprefix("usb-"))
    pool = pool if host is None else f"usbhost-{host}"
    ending = f"-{limits.digest(driver)[:6]}-{number:03d}"
    return limits.shorten(pool, limits.MAX_SUBDOMAIN_LENGTH - len(ending)) + ending


def label_selector(labels: Mapping[str, str]) -> str:
    """Of exactly the objects with these labels."""
    return ",".join(f"{key}={value}" for key, value in labels.items())


def owned(manifest: Manifest, labels: Mapping[str, str], reference: Manifest) -> Manifest:
    """The manifest with labels and owner reference."""
    meta = {**manifest["metadata"], "labels": dict(labels), "ownerReferences": [reference]}
    return {**manifest, "metadata": meta}


def _publishable(offers: Iterable[Offer]) -> Iterator[Offer]:
    seen: set[str] = set()
    for offer in sorted(offers, key=lambda o: (o.name, o.device.busid)):
        if offer.usable and offer.name not in seen and limits.is_dns_label(offer.name):
            seen.add(offer.name)
            yield offer


def _device(offer: Offer, options: SliceOptions) -> Manifest:
    values = attributes(offer, options.node)
    entry: Manifest = {"name": offer.name, "attributes": typed_attributes(values)}
    return with_taints(entry, options.taints.get(offer.name, ()))


def with_taints(entry: Manifest, taints: Sequence[Taint]) -> Manifest:
    """A device's entry with these taints, the same one where there are none."""
    return {**entry, "taints": [_taint(taint) for taint in taints]} if taints else entry


def _taint(taint: Taint) -> Manifest:
    value = {"value": taint.value} if taint.value else {}
    return {"key": taint.key, **value, "effect": taint.effect}


def _links(
    options: SliceOptions, offers: Sequence[Offer], free_ports: Mapping[Hub, int]
) -> list[Manifest]:
    here = typed_attributes({"kind": "direct", "node": node_value(options.node)})
    if options.layout is Layout.HUB:
        direct = {"name": DIRECT, "allowMultipleAllocations": True, "attributes": here}
        return [direct, *_hubs(free_ports)]
    # As many as devices: one is always left for a device that nobody has, and claims are tied
    # by `node` in both layouts.
    ways = [{"name": f"{DIRECT}-{n}", "attributes": here} for n in range(len(offers))]
    return [*ways, *_ports(free_ports)]


def _hubs(free_ports: Mapping[Hub, int]) -> Iterator[Manifest]:
    policy = {"default": "1", "validRange": {"min": "1", "max": "1"}}
    for hub in Hub:
        if free_ports.get(hub, 0) > 0:  # the API refuses a capacity below the policy's minimum
            yield {
                "name": f"vhci-{hub.value}",
                "allowMultipleAllocations": True,
                "attributes": typed_attributes({"kind": "vhci", "speedClass": hub.value}),
                "capacity": {"ports": {"value": str(free_ports[hub]), "requestPolicy": policy}},
            }


def _ports(free_ports: Mapping[Hub, int]) -> Iterator[Manifest]:
    for hub in Hub:
        for number in range(free_ports.get(hub, 0)):
            yield {
                "name": f"vhci-{hub.value}-{number}",
                "attributes": typed_attributes({"kind": "vhci", "speedClass": hub.value}),
            }


def _selection(options: SliceOptions) -> Manifest:
    if options.visibility is Visibility.NODE:
        return {"nodeName": options.node}
    return every_importer(options.group)


def every_importer(group: str) -> Manifest:
    """The node selection of slices that every node sees that can import."""
    term = {"key": f"{group}/usbip", "operator": "In", "values": ["true"]}
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}}


@dataclass(frozen=True, slots=True)
class PoolForm:
    """A pool's name, driver and generation."""

    name: str
    driver: str
    generation: int = 1


def _pool(
    prefix: str, devices: list[Manifest], selection: Manifest, options: SliceOptions
) -> list[Manifest]:
    name = f"{prefix}-{options.node}"
    form = PoolForm(name, options.driver, options.generation)
    return pool_slices(form, devices, selection)


def pool_slices(form: PoolForm, devices: list[Manifest], selection: Manifest) -> list[Manifest]:
    """The slices of one pool; none at all for a pool without devices."""
    tainted = any("taints" in device for device in devices)
    size = limits.MAX_DEVICES_ADVANCED if tainted else limits.MAX_DEVICES
    parts = [devices[start : start + size] for start in range(0, len(devices), size)]
    pool = {
        "name": form.name,
        "generation": form.generation,
        "resourceSliceCount": len(parts),
    }
    return [
        {
            "apiVersion": API_VERSION,
            "kind": "ResourceSlice",
            "metadata": {"name": slice_name(form.name, number, form.driver)},
            "spec": {
                "driver": form.driver,
                "pool": dict(pool),
                **selection,
                "devices": part,
            },
        }
        for number, part in enumerate(parts)
    ]
