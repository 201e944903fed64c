# SPDX-License-Identifier: Apache-2.0
"""Allocated ResourceClaims and facts as the tests of the plugin use them.

Node `b` is the one under test; `a` is its peer. Pools and names are those of slices/build.py.
"""

from __future__ import annotations

from typing import Any

from usbdra.plugin.contracts import DirectFact, Fact, UsbFact, VhciFact
from usbdra.state.claims import Identity
from usbdra.types import DeviceName, Hub, NodeName, Speed

DRIVER = "usb.virtualization.deckhouse.io"
HERE = NodeName("b")
PEER = NodeName("a")
BOOT = "boot-1"


def usb_fact(name: str, node: str = "a", speed: Speed = Speed.HIGH, **more: Any) -> UsbFact:
    identity = Identity("0951", "1666", name.upper())
    return UsbFact(DeviceName(name), NodeName(node), speed, identity, **more)


FACTS: dict[tuple[str, str], Fact] = {
    ("usb-a", "stick"): usb_fact("stick"),
    ("usb-a", "second"): usb_fact("second"),
    ("usb-a", "camera"): usb_fact("camera", speed=Speed.SUPER),
    ("usb-b", "mouse"): usb_fact("mouse", "b"),
    ("usblink-b", "direct"): DirectFact(HERE),
    ("usblink-b", "direct-0"): DirectFact(HERE),
    ("usblink-b", "vhci-high"): VhciFact(HERE, Hub.HIGH),
    ("usblink-b", "vhci-super"): VhciFact(HERE, Hub.SUPER),
    ("usblink-b", "vhci-high-0"): VhciFact(HERE, Hub.HIGH),
}


def result(request: str, pool: str, device: str, **more: Any) -> dict[str, Any]:
    return {"request": request, "driver": DRIVER, "pool": pool, "device": device, **more}


def parameters(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": f"{DRIVER}/v1alpha1", "kind": "USBDeviceConfig", **fields}


def opaque(
    source: str = "FromClaim", requests: list[str] | None = None, **fields: Any
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "source": source,
        "opaque": {"driver": DRIVER, "parameters": parameters(**fields)},
    }
    return entry if requests is None else {**entry, "requests": requests}


def claim(
    *results: dict[str, Any],
    name: str = "stick",
    uid: str = "uid-1",
    config: list[dict[str, Any]] | None = None,
    ties: list[list[str]] | None = None,
    annotations: dict[str, str] | None = None,
) -> dict[str, Any]:
    """A claim allocated with these results; `ties` become matchAttribute constraints."""
    constraints = [
        {"requests": requests, "matchAttribute": f"{DRIVER}/node"} for requests in ties or ()
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "namespace": "lab",
            "name": name,
            "uid": uid,
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": {"devices": {"constraints": constraints}},
        "status": {"allocation": {"devices": {"results": list(results), "config": config or []}}},
    }


TIES = [["usb", "link/direct"], ["usb", "link/vhci"]]


def remote_claim(name: str = "stick", uid: str = "uid-1", device: str = "stick") -> dict[str, Any]:
    """Device of node a over the hub of node b, as kubernetes.md section 1 allocates it."""
    return claim(
        result("usb", "usb-a", device),
        result("link/vhci", "usblink-b", "vhci-high", shareID="share-1"),
        name=name,
        uid=uid,
        ties=TIES,
    )


def local_claim(name: str = "mouse", uid: str = "uid-2") -> dict[str, Any]:
    return claim(
        result("usb", "usb-b", "mouse"),
        result("link/direct", "usblink-b", "direct", shareID="share-2"),
        name=name,
        uid=uid,
        ties=TIES,
    )
