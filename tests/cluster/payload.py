# SPDX-License-Identifier: Apache-2.0
"""The drive that turns a plain Debian node into a cluster node: Kubernetes and containerd.

Read only and shared by all nodes of a run. What differs from node to node is written into the
node by `tests.cluster.node`; container images come on `tests.cluster.runtime_disk`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.bed.cache import digest, entry
from tests.bed.clusterbin import cluster_binary, containerd_binaries
from tests.bed.images import ext4_image
from tests.bed.progress import step

MOUNT = "/opt/cluster"
# Debian packages that a cluster node has on top of a plain one.
PACKAGES = ("containernetworking-plugins", "mount", "runc")


def payload_image() -> Path:
    """An ext4 image of MOUNT: bin/ with every program."""
    binary, runtime = cluster_binary(), containerd_binaries()

    def build(folder: Path) -> None:
        with step("writing the drive with Kubernetes and containerd"):
            tree = folder / "tree"
            programs = tree / "bin"
            programs.mkdir(parents=True)
            for source in (binary, *runtime.iterdir()):
                shutil.copy2(source, programs / source.name)
            for name in ("kubelet", "kubectl"):
                (programs / name).symlink_to(binary.name)
            ext4_image(tree, folder / "payload.img", label="cluster")
            shutil.rmtree(tree)

    key = digest(str(binary), str(runtime), "v3")
    return entry("cluster-payload", key, build) / "payload.img"
