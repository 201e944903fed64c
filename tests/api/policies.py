# SPDX-License-Identifier: Apache-2.0
"""The chart's admission policies on the control plane, and claims to try them with."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

from tests.api.chart import GROUP, Manifest, installed
from tests.cluster.api import ClusterApi, manifest_text

DRIVER = f"usb.{GROUP}"
USB, DIRECT, VHCI = (f"usb-{kind}.{GROUP}" for kind in ("devices", "direct", "vhci"))
KINDS = frozenset(
    {
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "DeviceClass",
    }
)
EFFECT_SECONDS = 60
"""The API server reads new policies when it gets to it."""


@contextlib.contextmanager
def policies(api: ClusterApi, values: Mapping[str, str] | None = None) -> Iterator[list[Manifest]]:
    """Policies, accounts and rights of the chart, in force."""
    wanted = {"policies.enabled": "true", **(values or {})}
    with installed(api, wanted, lambda item: item["kind"] in KINDS) as made:
        deadline = time.monotonic() + EFFECT_SECONDS
        for probe in (claim("probe", link()), template("probe", link())):
            while refusal(api, probe) is None:
                assert time.monotonic() < deadline, "the policies are not in force"
                time.sleep(0.2)
        yield made


def refusal(
    api: ClusterApi, item: Manifest, namespace: str = "default", *, warnings: bool = False
) -> str | None:
    """What the server says against this object; None when it would take it.

    warnings: also what it only warns of.
    """
    try:
        api.kubectl(
            "create", "--dry-run=server", f"--namespace={namespace}", "-f", "-",
            f"--warnings-as-errors={str(warnings).lower()}", text=manifest_text(item),
        )  # fmt: skip
    except RuntimeError as error:
        return str(error)
    return None


def usb(name: str = "usb", **changes: Any) -> Manifest:
    """A request for a device."""
    return {"name": name, "exactly": {"deviceClassName": USB, **changes}}


def link(name: str = "link", **changes: Any) -> Manifest:
    """A request for a link, either way."""
    ways = [
        {"name": "direct", "deviceClassName": DIRECT, **changes},
        {"name": "vhci", "deviceClassName": VHCI, **changes},
    ]
    return {"name": name, "firstAvailable": ways}


def named(device: str = "usb-1", node: str = "node-a") -> Manifest:
    """Parameters that name a device."""
    parameters = {
        "apiVersion": f"{DRIVER}/v1alpha1",
        "kind": "USBDeviceConfig",
        "device": {"name": device, "node": node},
    }
    return {"opaque": {"driver": DRIVER, "parameters": parameters}}


def claim(name: str, *requests: Manifest, config: list[Manifest] | None = None) -> Manifest:
    """A ResourceClaim."""
    devices: Manifest = {"requests": list(requests)}
    if config:
        devices["config"] = config
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": devices},
    }


def template(name: str, *requests: Manifest, config: list[Manifest] | None = None) -> Manifest:
    """A ResourceClaimTemplate of the same claim."""
    inner = claim(name, *requests, config=config)["spec"]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": inner},
    }
