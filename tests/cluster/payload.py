# SPDX-License-Identifier: Apache-2.0
"""The drive that turns a plain Debian node into a cluster node: programs and container images.

Read only, shared by all nodes of a run and mounted at MOUNT. What differs from node to node is
written into the node by `tests.cluster.node`.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.bed.cache import digest, entry, tree_digest
from tests.bed.clusterbin import cluster_binary, containerd_binaries
from tests.bed.images import ext4_image
from tests.bed.progress import step
from tests.cluster import images

LABEL = "cluster"
MOUNT = "/opt/cluster"
# Debian packages that a cluster node has on top of a plain one.
PACKAGES = ("containernetworking-plugins", "mount", "runc")


def base_images() -> list[Path]:
    """Archives of the pause and test images, from the cache or written now."""
    key = digest(tree_digest([Path(images.__file__)]), tree_digest([images.busybox()]))
    folder = entry("cluster-images", key, images.write_base_images)
    return sorted(folder.glob("*.tar"))


def payload_image(archives: Sequence[Path] = ()) -> Path:
    """An ext4 image with bin/ and images/; `archives` are imported beside the base images."""
    binary, runtime = cluster_binary(), containerd_binaries()
    every = [*base_images(), *archives]

    def build(folder: Path) -> None:
        with step("writing the drive with Kubernetes, containerd and container images"):
            tree = folder / "tree"
            programs, imported = tree / "bin", tree / "images"
            programs.mkdir(parents=True)
            imported.mkdir()
            for source in (binary, *runtime.iterdir()):
                shutil.copy2(source, programs / source.name)
            for name in ("kubelet", "kubectl"):
                (programs / name).symlink_to(binary.name)
            for archive in every:
                shutil.copy2(archive, imported / archive.name)
            ext4_image(tree, folder / "payload.img", label=LABEL)
            shutil.rmtree(tree)

    key = digest(str(binary), str(runtime), tree_digest(every), "v1")
    return entry("cluster-payload", key, build) / "payload.img"
