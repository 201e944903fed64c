# SPDX-License-Identifier: Apache-2.0
"""Objects as `kubectl usb` reads them, in the shortest form."""

from __future__ import annotations

from typing import Any

from tests.unit.controller.make import CONTRACT, DRIVER, STICK
from usbdra.cli.kubectl.known import Facts

Object = dict[str, Any]


def record(
    namespace: str = "lab", node: str = "a", speed: int = 480, name: str = STICK, **reasons: str
) -> Object:
    """A NodeUSBDevice; `Ready="NotFound"` and the like change its conditions."""
    found = {"Ready": "Ready", "Assigned": "Assigned", "Attached": "Available", **reasons}
    good = ("Ready", "Assigned")
    said = {"name": name, "nodeName": node, "speed": speed, "vendorID": "0951", "serial": "ABC"}
    return {
        "metadata": {"name": name},
        "spec": {"assignedNamespace": namespace},
        "status": {
            "nodeName": node,
            "attributes": said,
            "conditions": [
                {"type": t, "status": str(r in good), "reason": r, "message": f"{r} it is"}
                for t, r in found.items()
            ],
        },
    }


def waiting(spec: Object | None = None, **meta: Any) -> Object:
    """A claim without allocation: by its label for the stick, or by a spec."""
    labels = {} if spec else {"labels": {CONTRACT.device_key: STICK}}
    own = {"namespace": "lab", "name": "c", "uid": "own", **labels}
    return {"metadata": {**own, **meta}, **({"spec": spec} if spec else {})}


def by_cel(*terms: str, device_class: str = "", **more: Any) -> Object:
    """A claim's spec: one request with an equality for each `key=value`."""
    parts = [
        'device.attributes["{}"].{} == "{}"'.format(DRIVER, *term.split("=", 1)) for term in terms
    ]
    exactly: Object = {"deviceClassName": device_class or CONTRACT.device_class("devices"), **more}
    if parts:
        exactly["selectors"] = [{"cel": {"expression": " && ".join(parts)}}]
    return {"devices": {"requests": [{"name": "usb", "exactly": exactly}]}}


def pod(node: str = "", message: str = "", **spec: Any) -> Object:
    """A pod that waits for claim c; `message` is the scheduler's."""
    selector = {"kubernetes.io/hostname": node} if node else {}
    condition = {"type": "PodScheduled", "status": "False", "reason": "", "message": message}
    return {
        "metadata": {"namespace": "lab", "name": "p"},
        "spec": {
            "nodeSelector": selector,
            "containers": [],
            "resourceClaims": [{"name": "stick", "resourceClaimName": "c"}],
            **spec,
        },
        "status": {"conditions": [condition] if message else []},
    }


def node(name: str, ready: str = "True") -> Object:
    """A Node and what it says of itself."""
    return {
        "metadata": {"name": name},
        "status": {"conditions": [{"type": "Ready", "status": ready, "reason": "", "message": ""}]},
    }


def facts(*devices: Object, claims: Any = (), **more: Any) -> Facts:
    """What is known: these devices, and what else is given by name."""
    named = {item["metadata"]["name"]: item for item in devices}
    return Facts(CONTRACT, named, claims, **more)
