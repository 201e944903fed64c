# SPDX-License-Identifier: Apache-2.0
"""Kubernetes in one node of the bed: containerd, the kubelet and their configuration.

Owns what is written into a node and how its two daemons start and stop. The machine itself, its
boot and its control channel belong to `tests.bed`; certificates come from the control plane.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.bed.errors import BedError
from tests.bed.node import Node
from tests.cluster.controlplane import NodeIdentity
from tests.cluster.images import PAUSE
from tests.cluster.payload import MOUNT
from tests.cluster.runtime_disk import LABEL as DATA_LABEL
from tests.cluster.runtime_disk import MOUNT as DATA_MOUNT

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
CONTAINERD_LOG = "/var/log/containerd.log"
KUBELET_LOG = "/var/log/kubelet.log"
LOGS = (CONTAINERD_LOG, KUBELET_LOG)
# containerd looks for its shim, runc for nothing: the system's own folders stay in the path.
_ENVIRONMENT = {"PATH": f"{MOUNT}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
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
mkdir -p {DATA_MOUNT}
mountpoint -q {DATA_MOUNT} || mount -L {DATA_LABEL} {DATA_MOUNT}
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
        # Tests kill one agent again and again; by default each start waits longer, up to 300 s.
        "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
        # How soon a pod is tried again whose devices could not be prepared; a minute by default.
        "syncFrequency": "10s",
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


class KubeNode:
    """The two daemons of one booted node. Not used from several threads at once.

    They run on when this process ends, and their ids are on record in the node: another process
    that has the node can go on with them.
    """

    def __init__(self, node: Node, where: NodeAddress) -> None:
        self.node = node
        self.where = where

    @property
    def name(self) -> str:
        """The name of the machine and of the Node object."""
        return self.node.name

    def configure(self, identity: NodeIdentity, feature_gates: Mapping[str, bool]) -> None:
        """Write the node's files; its disk keeps them."""
        for path, content in config_files(identity, self.where, feature_gates).items():
            self.node.write(path, content, 0o600)

    def start(self) -> None:
        """Start everything in a configured node, also after it was reset."""
        self.node.run(_PREPARE, timeout=60)
        self.node.run(["ip", "route", "replace", "default", "via", self.where.gateway])
        self.start_containerd()
        self.start_kubelet()

    def start_containerd(self) -> None:
        """Start containerd and return when its socket is there."""
        self._daemon("containerd", CONTAINERD_LOG)
        self.node.run(f"until [ -S {CONTAINERD_SOCKET} ]; do sleep 0.1; done", timeout=120)

    def start_kubelet(self) -> None:
        """Start the kubelet; the Node object tells when it is ready."""
        flags = [
            f"--config={_KUBELET_CONFIG}",
            f"--kubeconfig={_KUBECONFIG}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.where.address}",
            "--v=2",
        ]
        self._daemon(f"kubelet {' '.join(flags)}", KUBELET_LOG)

    def stop_kubelet(self) -> None:
        """End the kubelet and wait until it has ended; pods go on."""
        pid = "$(cat /run/kubelet.pid)"
        self.node.run(f"kill {pid}; while kill -0 {pid}; do sleep 0.1; done 2>/dev/null")

    def ctr(self, *arguments: str, timeout: float = 60.0) -> str:
        """Run containerd's own client on the kubelet's images and containers; its output."""
        command = ["ctr", "--namespace", "k8s.io", *arguments]
        return self.node.run(command, env=_ENVIRONMENT, timeout=timeout).out

    def collect(self, folder: Path) -> None:
        """Copy the daemons' logs and the console to this machine, as far as the node answers."""
        (folder / f"{self.name}-console.log").write_text(self.node.vm.log())
        for log in LOGS:
            with contextlib.suppress(BedError):
                self.node.pull(log, folder / f"{self.name}-{Path(log).name}")

    def _daemon(self, command: str, log: str) -> None:
        name = command.split(maxsplit=1)[0]
        script = f"echo $$ >/run/{name}.pid; exec {command} >>{log} 2>&1"
        self.node.start(script, env=_ENVIRONMENT)
