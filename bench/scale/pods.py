# SPDX-License-Identifier: Apache-2.0
"""Pods that claim a device, and how long the scheduler takes for one.

Owns the pods it made and removes them; no kubelet starts or ends any. Their claims stay allocated.
"""

from __future__ import annotations

import time

from bench.scale.following import Following
from bench.scale.population import SPACE
from usbdra.kube.client import KubeClient
from usbdra.kube.types import POD, Object


class Unplaced(Exception):
    """The scheduler found no node in time; the text is its own of its last attempt."""


async def seconds_to_place(
    admin: KubeClient, pods: Following, name: str, limit: float, node: str = ""
) -> float:
    """From a pod's creation until a watch shows where it goes. The claim has the pod's name.

    An attempt that the scheduler gives up, as it does after ten seconds of one node's devices, is
    within the time. limit: seconds. node: that the pod is pinned to. Raises Unplaced.
    """
    begun = time.perf_counter()
    await admin.create(POD, _pod(name, node), SPACE)
    try:
        await pods.until(name, lambda pod: bool(pod and pod["spec"].get("nodeName")), limit)
        return time.perf_counter() - begun
    except TimeoutError:
        raise Unplaced(f"{name}: {_message(await admin.get(POD, name, SPACE))}") from None
    finally:
        await admin.delete(POD, name, SPACE)


def _message(pod: Object) -> str:
    found = (pod.get("status") or {}).get("conditions") or ()
    return "; ".join(str(each.get("message")) for each in found) or "not looked at"


def _pod(name: str, node: str) -> Object:
    pinned = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    resources = {"claims": [{"name": "usb"}]}
    return {
        "metadata": {"name": name},
        "spec": {
            **pinned,
            "terminationGracePeriodSeconds": 0,  # with another the end would wait for a kubelet
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "c", "image": "none", "resources": resources}],
            "resourceClaims": [{"name": "usb", "resourceClaimName": name}],
        },
    }
