# SPDX-License-Identifier: Apache-2.0
"""Claims and their pods that tests build in code; what users copy is in deploy/examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.cluster.driver import DRIVER, GROUP
from tests.cluster.manifests import pod

USB, DIRECT, VHCI = (f"{name}.{GROUP}" for name in ("usb-devices", "usb-direct", "usb-vhci"))
PARAMETERS = {"apiVersion": f"usb.{GROUP}/v1alpha1", "kind": "USBDeviceConfig"}
Object = dict[str, Any]


def serial(text: str) -> str:
    """CEL for the device with this serial."""
    return attribute("serial", text)


def attribute(name: str, text: str) -> str:
    """CEL for devices whose attribute has this text."""
    here = f'device.attributes["{DRIVER}"].{name}'
    return f'has({here}) && {here} == "{text}"'


def device(where: str = "", **more: Any) -> Object:
    """The exact part of a request for a device; `where` is CEL."""
    selectors = [{"cel": {"expression": where}}] if where else []
    return {"deviceClassName": USB, "selectors": selectors, **more}


def requests(where: str, name: str = "usb", **more: Any) -> list[Object]:
    """A request for a device and one for the way to it, `NAME-link`."""
    return [{"name": name, "exactly": device(where, **more)}, link(name)]


def assigned_to(namespace: str) -> Object:
    """What a claim of a namespace tolerates, so that it gets the devices assigned to it."""
    return {"key": f"{GROUP}/assigned", "operator": "Equal", "value": namespace}


def link(name: str = "usb") -> Object:
    """The request for a way to the device of request `name`."""
    ways = [("direct", DIRECT), ("vhci", VHCI)]
    choices = [{"name": way, "deviceClassName": class_name} for way, class_name in ways]
    return {"name": f"{name}-link", "firstAvailable": choices}


def ties(name: str = "usb") -> list[Object]:
    """The constraints between a device and the way to it."""
    pairs = [("direct", "node"), ("vhci", "speedClass")]
    return [
        {"requests": [name, f"{name}-link/{way}"], "matchAttribute": f"{DRIVER}/{attribute_name}"}
        for way, attribute_name in pairs
    ]


def parameters(requests: Sequence[str] = (), **fields: Any) -> Object:
    """An entry of a claim's config with USBDeviceConfig; no requests: for all."""
    opaque = {"driver": DRIVER, "parameters": {**PARAMETERS, **fields}}
    return {**({"requests": list(requests)} if requests else {}), "opaque": opaque}


def echo(tty: str) -> str:
    """A shell script that talks to the echo of a serial gadget and prints hello."""
    return f"exec 3<>{tty}; stty raw -echo <&3; printf hello >&3; timeout 20 head -c 5 <&3"


def claim(
    name: str,
    asked: Sequence[Object],
    constraints: Sequence[Object] = (),
    config: Sequence[Object] = (),
) -> Object:
    """A ResourceClaim."""
    parts = {"requests": asked, "constraints": constraints, "config": config}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {key: list(value) for key, value in parts.items() if value}},
    }


def usb_claim(name: str, where: str, **fields: Any) -> Object:
    """A claim for one device and the way to it; `fields` are parameters."""
    config = [parameters(["usb"], **fields)] if fields else []
    return claim(name, requests(where), ties(), config)


def assigned_disk(name: str, stick: str, namespace: str) -> Object:
    """A namespace's own claim for the stick that is assigned to it, as a disk that a pod reads."""
    asked = requests(serial(stick), tolerations=[assigned_to(namespace)])
    config = parameters(["usb"], owner={"uid": 1000, "gid": 1000}, childNodes=["block"])
    return claim(name, asked, ties(), [config])


def consumer(
    name: str,
    claim_names: str | Mapping[str, str],
    *,
    node: str | None = None,
    command: Sequence[str] = ("sleep", "infinity"),
) -> Object:
    """An unprivileged pod with one claim, or with several: the pod's own name -> the claim's."""
    named = {"usb": claim_names} if isinstance(claim_names, str) else claim_names
    made = pod(name, command, node=node)
    made["spec"]["resourceClaims"] = [
        {"name": own, "resourceClaimName": other} for own, other in named.items()
    ]
    made["spec"]["containers"][0]["resources"] = {"claims": [{"name": own} for own in named]}
    return made
