# SPDX-License-Identifier: Apache-2.0
"""Kubernetes in one node of the bed: containerd, the kubelet and their configuration.

Owns what is written into a node and how its two daemons start and stop. The machine itself, its
boot and its control channel belong to `tests.bed`; certificates come from the control plane.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.controlplane import NodeIdentity
from tests.cluster.images import PAUSE
from tests.cluster.payload import LABEL, MOUNT

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
LOGS = ("/var/log/containerd.log", "/var/log/kubelet.log")
_BIN = f"{MOUNT}/bin"
_PKI = "/etc/kubernetes/pki"
_KUBECONFIG = "/etc/kubernetes/kubeconfig"
_KUBELET_CONFIG = "/etc/kubernetes/kubelet.yaml"
# overlay for containerd's snapshots, veth for pods' links.
_MODULES = ("overlay", "veth")

_CONTAINERD_CONFIG = f"""\
version = 3
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{PAUSE}"
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["/usr/lib/cni"]
  conf_dir = "/etc/cni/net.d"
"""

# Runs at every boot of the node. Pods' mounts must propagate, as under systemd.
_PREPARE = f"""\
set -eu
mount --make-rshared /
mkdir -p {MOUNT}
mountpoint -q {MOUNT} || mount -o ro -L {LABEL} {MOUNT}
modprobe -a {" ".join(_MODULES)}
echo 1 > /proc/sys/net/ipv4/ip_forward
"""


@dataclass(frozen=True)
class NodeAddress:
    """Where a node and its pods are on the bed's network."""

    address: str
    gateway: str
    pod_subnet: str


def config_files(
    identity: NodeIdentity, where: NodeAddress, feature_gates: Mapping[str, bool]
) -> dict[str, bytes]:
    """Every file that a node needs besides its drives: path -> content."""
    kubelet = yaml.safe_dump(kubelet_config(feature_gates), sort_keys=False)
    return {
        "/etc/containerd/config.toml": _CONTAINERD_CONFIG.encode(),
        "/etc/cni/net.d/10-bed.conflist": json.dumps(cni_config(where.pod_subnet)).encode(),
        _KUBELET_CONFIG: kubelet.encode(),
        _KUBECONFIG: identity.kubeconfig.encode(),
        f"{_PKI}/ca.crt": identity.ca_pem,
        f"{_PKI}/kubelet.crt": identity.serving_cert,
        f"{_PKI}/kubelet.key": identity.serving_key,
    }


def kubelet_config(feature_gates: Mapping[str, bool]) -> dict[str, Any]:
    """KubeletConfiguration: authentication as in a real cluster, nothing evicted or collected."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{_PKI}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{_PKI}/kubelet.crt",
        "tlsPrivateKeyFile": f"{_PKI}/kubelet.key",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "failSwapOn": False,
        "resolvConf": "",
        # Images are imported, never pulled: one that is collected would not come back.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%"},
        "runtimeRequestTimeout": "5m",  # emulation is slow
        "featureGates": dict(feature_gates),
    }


def cni_config(pod_subnet: str) -> dict[str, Any]:
    """A routed pod network: no address translation, the bed's gateway knows every node's subnet."""
    address_ranges = {
        "type": "host-local",
        "ranges": [[{"subnet": pod_subnet}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    return {
        "cniVersion": "1.0.0",
        "name": "bed",
        "plugins": [{"type": "ptp", "ipMasq": False, "ipam": address_ranges}],
    }
