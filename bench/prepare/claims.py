# SPDX-License-Identifier: Apache-2.0
"""Claims that no pod uses: allocated by hand to one node, for devices of another.

The kubelet must not see them, for it would prepare them itself; and a claim that nobody has
reserved loses its allocation. So each is reserved for one pod that waits at a scheduling gate.
Owns the namespace with all of it.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Sequence
from typing import Any

from tests.cluster import claims
from tests.cluster.api import ClusterApi
from tests.cluster.driver import DRIVER


class Allocated:
    """A namespace with claims for a node; close with `remove`."""

    def __init__(self, api: ClusterApi, importer: str) -> None:
        self._api = api
        self._importer = importer
        self._name = f"bench-{secrets.token_hex(3)}"
        api.kubectl("create", "namespace", self._name)
        api.wait(
            api.core.list_namespaced_service_account,
            lambda found: True if found else None,
            f"service account {self._name}/default, which pods need",
            namespace=self._name,
        )

    def make(self, devices: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
        """A claim for each device ({pool, device, serial, speedClass}, which is `high` where it
        is not said); what the kubelet calls them by."""
        names = [f"claim-{index}" for index in range(len(devices))]
        made = [
            claims.usb_claim(name, claims.serial(device["serial"]))
            for name, device in zip(names, devices, strict=True)
        ]
        pod = claims.consumer("gated", {f"usb{i}": name for i, name in enumerate(names)})
        pod["spec"]["schedulingGates"] = [{"name": "bench.example.com/never"}]
        self._api.apply([*made, pod], namespace=self._name)
        user = self._api.core.read_namespaced_pod("gated", self._name).metadata.uid
        return [
            self._allocate(name, device, user) for name, device in zip(names, devices, strict=True)
        ]

    def remove(self) -> None:
        """Delete the namespace with all in it."""
        self._api.kubectl("delete", "namespace", self._name)

    def _allocate(self, name: str, device: dict[str, Any], user: str) -> dict[str, str]:
        link = f"vhci-{device.get('speedClass', 'high')}"
        port = {"shareID": str(uuid.uuid4()), "consumedCapacity": {"ports": "1"}}
        results = [
            _result("usb", device["pool"], device["device"]),
            {**_result("usb-link/vhci", f"usblink-{self._importer}", link), **port},
        ]
        status = {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": "gated", "uid": user}],
        }
        stored = self._api.resource.patch_namespaced_resource_claim_status(
            name, self._name, {"status": status}
        )
        return {"namespace": self._name, "name": name, "uid": stored.metadata.uid}


def _result(request: str, pool: str, device: str) -> dict[str, Any]:
    return {"request": request, "driver": DRIVER, "pool": pool, "device": device}
