# SPDX-License-Identifier: Apache-2.0
"""The driver in the bed: image, chart, certificates and node labels, as an administrator would.

Owns the installation; the bed is bed.py's. Nothing here is special to the bed but where the
image and the chart's renderer come from.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.bed.clusterbin import helm_binary, kubernetes_version
from tests.cluster.bed import ClusterBed, ClusterSpec
from tests.cluster.usbdra_image import usbdra_archive

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/usbdra"
NAMESPACE = "usbdra"
GROUP = "virtualization.deckhouse.io"
DRIVER = f"usb.{GROUP}"
VERSION = "0.1.0"
PKI = "/etc/usbdra/pki"


def spec(**changes: Any) -> ClusterSpec:
    """A cluster whose nodes have the driver's image."""
    return ClusterSpec(archives=[usbdra_archive(VERSION)], **changes)


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
    """A CA on the first node, a certificate on each; keys go nowhere else."""
    first = next(iter(bed.nodes))
    _usbdra(bed, first, "pki", "init")
    for name in bed.nodes:
        node = bed.machine(name)
        _usbdra(bed, first, "pki", "issue", name, "--host", node.ip)
        for file in ("ca.crt", "tls.crt", "tls.key"):
            data = bed.machine(first).read(f"{PKI}/nodes/{name}/{file}")
            node.write(f"{PKI}/{file}", data, mode=0o600)


def _usbdra(bed: ClusterBed, name: str, *words: str) -> None:
    """The program out of the image on a node, without the cluster's help."""
    bed.machine(name).sh(f"mkdir -p {PKI}")
    mount = f"--mount=type=bind,src={PKI},dst={PKI},options=rbind:rw"
    image, run = f"localhost/usbdra:{VERSION}", f"pki-{time.monotonic_ns()}"
    # ctr takes these words for the whole command, the image's entry point included
    bed.nodes[name].ctr("run", "--rm", mount, image, run, "usbdra", *words, timeout=120)


def installed(bed: ClusterBed) -> bool:
    """Whether the agents are there, as on a cluster that was left running."""
    words = ["get", "daemonset", "usbdra-agent", f"--namespace={NAMESPACE}", "--ignore-not-found"]
    return bool(bed.api.kubectl(*words))


def install(bed: ClusterBed, values: Mapping[str, str] | None = None) -> None:
    """Certificates, node labels, the chart; returns when every agent is ready."""
    certify(bed)
    for name in bed.nodes:
        bed.api.kubectl("label", "node", name, f"{GROUP}/usbip=true", "--overwrite")
    bed.api.apply(render(values), namespace=NAMESPACE)
    ready(bed)


def ready(bed: ClusterBed, timeout: float = 180) -> None:
    """Wait until the DaemonSet is rolled out."""
    bed.api.kubectl(
        "-n", NAMESPACE, "rollout", "status", "daemonset/usbdra-agent",
        f"--timeout={timeout:.0f}s", timeout=timeout + 10,
    )  # fmt: skip


@contextlib.contextmanager
def configured(bed: ClusterBed, values: Mapping[str, str]) -> Iterator[None]:
    """The driver with other values than the chart's own, which it has again afterwards."""
    bed.api.apply(render(values), namespace=NAMESPACE)
    ready(bed)
    try:
        yield
    finally:
        bed.api.apply(render(), namespace=NAMESPACE)
        ready(bed)
