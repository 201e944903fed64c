# SPDX-License-Identifier: Apache-2.0
"""Device metadata files (KEP 5304): what was allocated, in a file the container can read.

Owns their content and their place in the container. Pure. Both published versions are written
one after another as a JSON stream, newest first, as readers take the first one they know.
Source: k8s.io/dynamic-resource-allocation v0.37.2, api/metadata and kubeletplugin/metadata.go.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from usbdra.state.claims import ClaimRecord, ClaimRef, DeviceRecord

CONTAINER_DIR = PurePosixPath("/var/run/kubernetes.io/dra-device-attributes")
VERSIONS = ("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1")


def container_path(driver: str, ref: ClaimRef, request: str) -> PurePosixPath:
    """Where the container finds the file of this request (api/metadata/helpers.go)."""
    name = f"{driver}-metadata.json"
    if ref.pod_claim_name:
        return CONTAINER_DIR / "resourceclaimtemplates" / ref.pod_claim_name / request / name
    return CONTAINER_DIR / "resourceclaims" / ref.name / request / name


def requests(record: ClaimRecord) -> list[str]:
    """The requests a file is written for: those that have a device."""
    return list(dict.fromkeys(device.base_request for device in record.devices))


def content(driver: str, record: ClaimRecord, request: str) -> str:
    """The file's text for one request of a claim."""
    devices = [d for d in record.devices if d.base_request == request]
    ref = record.ref
    body: dict[str, Any] = {
        "kind": "DeviceMetadata",
        "metadata": {
            "name": ref.name,
            "namespace": ref.namespace,
            "uid": ref.uid,
            "generation": 1,
        },
        "requests": [
            {"name": devices[0].request, "devices": [_device(driver, d) for d in devices]}
        ],
    }
    if ref.pod_claim_name:
        body["podClaimName"] = ref.pod_claim_name
    return "".join(json.dumps({"apiVersion": v, **body}) + "\n" for v in VERSIONS)


def _device(driver: str, device: DeviceRecord) -> dict[str, Any]:
    return {
        "driver": driver,
        "pool": device.pool,
        "name": device.device,
        "attributes": _attributes(device),
    }


def _attributes(device: DeviceRecord) -> Mapping[str, Mapping[str, str | int]]:
    """Identity, and the numbers the device has on this node; named as in ResourceSlices."""
    found: dict[str, str | int] = {"name": device.name, "node": device.node}
    identity = device.held.identity if device.held else device.identity
    if identity:
        found |= {"vendorID": identity.vendor_id, "productID": identity.product_id}
        if identity.serial:
            found["serial"] = identity.serial
    if device.held:
        held = device.held
        found |= {"busID": held.busid, "bus": held.busnum, "deviceNumber": held.devnum}
    return {k: {"int": v} if isinstance(v, int) else {"string": v} for k, v in found.items()}
