# SPDX-License-Identifier: Apache-2.0
"""What the API server checks of ResourceSlices, written from its own validation code.

Owns `problems()`, the oracle of the slice tests. It is independent of usbdra.slices on
purpose. Source: pkg/apis/resource/validation/validation.go, Kubernetes v1.37.2.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
C_IDENTIFIER = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
SELECTIONS = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")


def problems(slices: Sequence[dict[str, Any]]) -> list[str]:
    """Everything an API server, or a scheduler that reads these slices, would object to."""
    return [*_names(slices), *_pools(slices), *(p for s in slices for p in _slice(s))]


def _names(slices: Sequence[dict[str, Any]]) -> Iterator[str]:
    names = [s["metadata"]["name"] for s in slices]
    yield from (f"two slices named {n}" for n, times in Counter(names).items() if times > 1)
    yield from (f"slice name {n}" for n in names if len(n) > 253 or not SUBDOMAIN.match(n))


def _pools(slices: Sequence[dict[str, Any]]) -> Iterator[str]:
    pools: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for item in slices:
        pools[item["spec"]["pool"]["name"]].append(item["spec"])
    for name, specs in pools.items():
        if len(name) > 253 or not SUBDOMAIN.match(name):
            yield f"pool name {name}"
        if {s["pool"]["resourceSliceCount"] for s in specs} != {len(specs)}:
            yield f"pool {name}: resourceSliceCount"
        if len({s["pool"]["generation"] for s in specs}) != 1:
            yield f"pool {name}: more than one generation"
        if len({repr([s.get(k) for k in SELECTIONS]) for s in specs}) != 1:
            yield f"pool {name}: mixed node selections"
        devices = Counter(d["name"] for s in specs for d in s["devices"])
        yield from (f"pool {name}: {d} twice" for d, times in devices.items() if times > 1)


def _slice(item: dict[str, Any]) -> Iterator[str]:
    spec = item["spec"]
    if (item["apiVersion"], item["kind"]) != ("resource.k8s.io/v1", "ResourceSlice"):
        yield "apiVersion or kind"
    if len(spec["driver"]) > 63 or not SUBDOMAIN.match(spec["driver"]):
        yield f"driver {spec['driver']}"
    if sum(key in spec for key in SELECTIONS) != 1:
        yield "exactly one node selection is required"
    if len(spec.get("nodeSelector", {}).get("nodeSelectorTerms", [{}])) != 1:
        yield "exactly one node selector term is required"
    tainted = any(d.get("taints") for d in spec["devices"])
    if not 0 < len(spec["devices"]) <= (64 if tainted else 128):
        yield f"{len(spec['devices'])} devices"
    for device in spec["devices"]:
        yield from (f"device {device['name']}: {p}" for p in _device(device))


def _device(device: dict[str, Any]) -> Iterator[str]:
    if len(device["name"]) > 63 or not LABEL.match(device["name"]):
        yield "name"
    attributes, capacity = device.get("attributes", {}), device.get("capacity", {})
    if len(attributes) + len(capacity) > 32:
        yield "too many attributes and capacities"
    if len(device.get("taints", [])) > 16:
        yield "too many taints"
    for key in [*attributes, *capacity]:
        if len(key) > 32 or not C_IDENTIFIER.match(key):
            yield f"qualified name {key}"
    for key, value in attributes.items():
        yield from (f"attribute {key}: {p}" for p in _value(value))
    for key, value in capacity.items():
        yield from (f"capacity {key}: {p}" for p in _capacity(device, value))


def _value(value: dict[str, Any]) -> Iterator[str]:
    if len(value) != 1:
        yield "exactly one value must be specified"
    kind, content = next(iter(value.items()))
    if {"string": str, "int": int, "bool": bool}.get(kind) is not type(content):
        yield f"{kind} is {content!r}"
    if isinstance(content, str):
        try:
            data = content.encode()
        except UnicodeEncodeError:
            yield "not valid UTF-8"
            return
        if not 0 < len(data) <= 64:
            yield f"{len(data)} bytes"


def _capacity(device: dict[str, Any], capacity: dict[str, Any]) -> Iterator[str]:
    policy = capacity.get("requestPolicy")
    if policy is None:
        return
    if device.get("allowMultipleAllocations") is not True:
        yield "requestPolicy: allowMultipleAllocations must be true"
    low, high = int(policy["validRange"]["min"]), int(policy["validRange"]["max"])
    if not low <= int(policy["default"]) <= high <= int(capacity["value"]):
        yield "requestPolicy: default, min, max and value do not fit"
