# SPDX-License-Identifier: Apache-2.0
"""The driver in the bed: image, chart, certificates and node labels, as an administrator would.

Owns the installation; the bed is bed.py's. Nothing here is special to the bed but where the
image and the chart's renderer come from.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.bed.clusterbin import helm_binary, kubernetes_version
from tests.bed.host import run
from tests.cluster.bed import ClusterBed, ClusterSpec
from tests.cluster.machine_image import machine_archive
from tests.cluster.usbdra_image import usbdra_archive

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/usbdra"
NAMESPACE = "usbdra"
GROUP = "virtualization.deckhouse.io"
DRIVER = f"usb.{GROUP}"
VERSION = "0.1.0"
MACHINES = "USBDRA_MACHINES"
"""Set for the tests of virtual machines: their image would make every bed slower."""
PKI = "/etc/usbdra/pki"


def spec(**changes: Any) -> ClusterSpec:
    """A cluster whose nodes have the driver's image; with MACHINES also one that runs QEMU."""
    machine = [machine_archive()] if os.environ.get(MACHINES) else []
    return ClusterSpec(archives=[usbdra_archive(VERSION), *machine], **changes)


def render(values: Mapping[str, str] | None = None) -> str:
    """The chart's manifests. Raises RuntimeError with what helm said."""
    command = [str(helm_binary()), "template", "usbdra", str(CHART), "--namespace", NAMESPACE]
    command += ["--kube-version", kubernetes_version(), "--set", "createNamespace=true"]
    command += ["--no-hooks"]  # they belong to an uninstallation
    for key, value in (values or {}).items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"helm template: {done.stderr.strip()}")
    return done.stdout


def certify(bed: ClusterBed) -> None:
    """A CA on this machine, a certificate on each node; the CA's key goes nowhere."""
    with tempfile.TemporaryDirectory() as name:
        _pki("init", f"--dir={name}")
        for node in map(bed.machine, bed.nodes):
            _pki("issue", node.name, f"--dir={name}", "--host", node.ip)
            node.sh(f"mkdir -p {PKI}")
            for file in ("ca.crt", "tls.crt", "tls.key"):
                data = Path(name, "nodes", node.name, file).read_bytes()
                node.write(f"{PKI}/{file}", data, mode=0o600)


def _pki(*words: str) -> None:
    """The administrator's own program. Raises HostError with what it said."""
    run([sys.executable, "-m", "usbdra", "pki", *words], cwd=ROOT)


def bed_values(values: Mapping[str, str] | None = None) -> dict[str, str]:
    """Values of the bed's installation: those of the quick start, and what a test wants.

    Claims of most tests are for devices that nobody assigned; the attack suite and the demo of an
    assignment say otherwise.
    """
    return {"requireAssignment": "false", **(values or {})}


def installed(bed: ClusterBed) -> bool:
    """Whether the agents are there, as on a cluster that was left running."""
    words = ["get", "daemonset", "usbdra-agent", f"--namespace={NAMESPACE}", "--ignore-not-found"]
    return bool(bed.api.kubectl(*words))


def install(bed: ClusterBed, values: Mapping[str, str] | None = None) -> None:
    """Node labels and the chart; returns when every agent is ready."""
    for name in bed.nodes:
        bed.api.kubectl("label", "node", name, f"{GROUP}/usbip=true", "--overwrite")
    bed.api.apply(render(bed_values(values)), namespace=NAMESPACE)
    ready(bed)


def ready(bed: ClusterBed, timeout: float = 300) -> None:
    """Wait until agents and controller are rolled out."""
    for workload in ("deployment/usbdra-controller", "daemonset/usbdra-agent"):
        bed.api.kubectl(
            "-n", NAMESPACE, "rollout", "status", workload,
            f"--timeout={timeout:.0f}s", timeout=timeout + 10,
        )  # fmt: skip


@contextlib.contextmanager
def configured(bed: ClusterBed, values: Mapping[str, str]) -> Iterator[None]:
    """The driver with other values than the chart's own, which it has again afterwards."""
    try:
        bed.api.apply(render(bed_values(values)), namespace=NAMESPACE)
        ready(bed)
        yield
    finally:
        bed.api.apply(render(bed_values()), namespace=NAMESPACE)
        ready(bed)
