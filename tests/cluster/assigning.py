# SPDX-License-Identifier: Apache-2.0
"""What an administrator says: whose a device is, and `kubectl usb`."""

from __future__ import annotations

import pytest

from tests.cluster.bed import ClusterBed
from usbdra.cli.kubectl.program import program
from usbdra.cli.main import run


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


def kubectl_usb(
    bed: ClusterBed, capfd: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str, str]:
    """Run `kubectl usb` as an administrator: exit code, output, errors."""
    capfd.readouterr()
    path = str(bed.plane.admin_kubeconfig)
    code = run([*words, "--kubeconfig", path], program, "kubectl usb")
    out, err = capfd.readouterr()
    return code, out, err
