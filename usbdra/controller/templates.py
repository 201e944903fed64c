# SPDX-License-Identifier: Apache-2.0
"""The ResourceClaim and the ResourceClaimTemplate of an assigned device. Pure.

Owns their form. Which form depends on who can see the device (docs/objects.md): where all nodes
see it, device and link are asked for and tied, so that ports are counted; where only its own
node sees it, the scheduler looks at that one device, or at one port of the node it tries, and
parameters name the device. Both count ports exactly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from usbdra.controller.acts import Object
from usbdra.controller.published import Published, Reach
from usbdra.kube.custom import MANAGED_BY, MANAGER, Contract
from usbdra.slices.attributes import node_value
from usbdra.slices.limits import digest

PARAMETERS = "USBDeviceConfig"
PARAMETERS_VERSION = "v1alpha1"


def claim_spec(device: Published, namespace: str, names: Contract) -> Object:
    """ResourceClaimSpec (resource.k8s.io/v1) for this device, used from this namespace."""
    if device.reach is Reach.CLUSTER:
        return {"devices": _tied(device, namespace, names)}
    local = _local(device, namespace, names)
    if device.reach is Reach.LOCAL or not device.speed_class:
        return {"devices": {"requests": [{"name": "usb", "exactly": local}]}}
    selector = f'{_attribute(names, "speedClass")} == "{device.speed_class}"'
    remote = {
        "name": "remote",
        "deviceClassName": names.device_class("vhci"),
        "selectors": [{"cel": {"expression": selector}}],
    }
    request = {"name": "usb", "firstAvailable": [{"name": "local", **local}, remote]}
    return {"devices": {"requests": [request], "config": [_parameters(device, names)]}}


def claim(name: str, spec: Object, owner: Mapping[str, Any], names: Contract) -> Object:
    """The shared claim: one for each assigned device, so it is allocated at most once."""
    return {"metadata": _metadata(name, spec, owner, names), "spec": spec}


def template(name: str, spec: Object, owner: Mapping[str, Any], names: Contract) -> Object:
    """The template: a claim of its own for each pod that comes, one after the other."""
    labels = {names.device_key: name}
    inner = {"metadata": {"labels": labels}, "spec": spec}
    return {"metadata": _metadata(name, spec, owner, names), "spec": inner}


def spec_hash(spec: Object) -> str:
    """What tells two specs apart."""
    return digest(json.dumps(spec, sort_keys=True))


def is_ours(item: Mapping[str, Any], names: Contract) -> bool:
    """Made by this controller: somebody else's object of the same name is left alone."""
    return names.hash_key in (item["metadata"].get("annotations") or {})


def is_current(item: Mapping[str, Any], spec: Object, owner_uid: str, names: Contract) -> bool:
    """Asks for what we would ask for now, and goes when this very USBDevice goes."""
    meta = item["metadata"]
    owners = {owner.get("uid") for owner in meta.get("ownerReferences") or ()}
    return (meta.get("annotations") or {}).get(names.hash_key) == spec_hash(spec) and (
        owner_uid in owners
    )


def _tied(device: Published, namespace: str, names: Contract) -> Object:
    link = [
        {"name": kind, "deviceClassName": names.device_class(kind)} for kind in ("direct", "vhci")
    ]
    return {
        "requests": [
            {"name": "usb", "exactly": _local(device, namespace, names)},
            {"name": "link", "firstAvailable": link},
        ],
        "constraints": [
            {"requests": ["usb", "link/direct"], "matchAttribute": f"{names.driver}/{device.tie}"},
            {"requests": ["usb", "link/vhci"], "matchAttribute": f"{names.driver}/speedClass"},
        ],
    }


def _local(device: Published, namespace: str, names: Contract) -> Object:
    name, node = _attribute(names, "name"), _attribute(names, "node")
    selector = f'{name} == "{device.name}" && {node} == "{node_value(device.node)}"'
    fence = {"key": names.key("assigned"), "operator": "Equal", "value": namespace}
    return {
        "deviceClassName": names.device_class("devices"),
        "selectors": [{"cel": {"expression": selector}}],
        "tolerations": [{**fence, "effect": "NoSchedule"}],
    }


def _parameters(device: Published, names: Contract) -> Object:
    parameters = {
        "apiVersion": f"{names.driver}/{PARAMETERS_VERSION}",
        "kind": PARAMETERS,
        "device": {"name": device.name, "node": device.node},
    }
    return {"requests": ["usb"], "opaque": {"driver": names.driver, "parameters": parameters}}


def _metadata(name: str, spec: Object, owner: Mapping[str, Any], names: Contract) -> Object:
    reference = {**owner, "controller": True}
    return {
        "name": name,
        "labels": {MANAGED_BY: MANAGER, names.device_key: name},
        "annotations": {names.hash_key: spec_hash(spec)},
        "ownerReferences": [reference],
    }


def _attribute(names: Contract, key: str) -> str:
    return f'device.attributes["{names.driver}"].{key}'
