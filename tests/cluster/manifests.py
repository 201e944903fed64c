# SPDX-License-Identifier: Apache-2.0
"""Small manifests that tests of the bed build in code; what users copy is in deploy/examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.cluster.images import BUSYBOX


def pod(
    name: str,
    command: Sequence[str] = ("sleep", "infinity"),
    *,
    node: str | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """An unprivileged, non-root busybox pod; `node` pins it by selector, so it is scheduled.

    `spec` adds to the pod's spec or replaces parts of it.
    """
    selector = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "restartPolicy": "Never",
            "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000},
            "containers": [
                {
                    "name": "main",
                    "image": BUSYBOX,
                    "imagePullPolicy": "Never",
                    "command": list(command),
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
            **selector,
            **spec,
        },
    }


def links_slice(name: str, node: str, driver: str) -> dict[str, Any]:
    """A slice that uses the fields an older API server drops (consumable capacity)."""
    ports = {
        "value": "8",
        "requestPolicy": {"default": "1", "validRange": {"min": "1", "max": "1"}},
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": "vhci-super",
                    "allowMultipleAllocations": True,
                    "attributes": {"speedClass": {"string": "super"}},
                    "capacity": {"ports": ports},
                }
            ],
        },
    }
