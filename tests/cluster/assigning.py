# SPDX-License-Identifier: Apache-2.0
"""Whose a device is, said as an administrator says it."""

from __future__ import annotations

from tests.cluster.bed import ClusterBed


def assign(bed: ClusterBed, device: str, namespace: str) -> None:
    """As an administrator does; returns when the controller has seen to it."""
    bed.api.kubectl("wait", "nusb", device, "--for=create", "--timeout=60s", timeout=70)
    bed.api.kubectl(
        "patch", "nusb", device, "--type=merge",
        "-p", f'{{"spec": {{"assignedNamespace": "{namespace}"}}}}',
    )  # fmt: skip
    state = "True" if namespace else "False"
    condition = f"--for=condition=Assigned={state}"
    bed.api.kubectl("wait", "nusb", device, condition, "--timeout=60s", timeout=70)
