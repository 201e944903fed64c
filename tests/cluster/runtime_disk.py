# SPDX-License-Identifier: Apache-2.0
"""The disk of containerd's own data, with every container image imported beforehand.

An import hashes and unpacks each layer, which takes an emulated node minutes and this machine
seconds: so a containerd runs here for the time of the build, apart from any other by its folders.
Nodes get the disk by overlay and start with the images in place.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.bed.cache import digest, entry, tree_digest
from tests.bed.clusterbin import containerd_binaries
from tests.bed.errors import HostError
from tests.bed.host import need_root, program, run
from tests.bed.images import ext4_image
from tests.bed.process import spawn, stop
from tests.bed.progress import step
from tests.cluster import images

LABEL = "containerd"
MOUNT = "/var/lib/containerd"
DISK_MIB = 8192  # sparse
_START_SECONDS = 30.0
# What serves Kubernetes is of no use to an import and reaches for the machine's own folders.
_CONFIG = """\
version = 3
root = "{folder}/tree"
state = "{folder}/state"
disabled_plugins = [
  "io.containerd.grpc.v1.cri",
  "io.containerd.cri.v1.images",
  "io.containerd.cri.v1.runtime",
  "io.containerd.nri.v1.nri",
]
[grpc]
  address = "{folder}/socket"
[ttrpc]
  address = "{folder}/socket.ttrpc"
"""


def base_images() -> list[Path]:
    """Archives of the pause and test images, from the cache or written now."""
    key = digest(tree_digest([Path(images.__file__)]), tree_digest([images.busybox()]))
    return sorted(entry("cluster-images", key, images.write_base_images).glob("*.tar"))


def runtime_disk(archives: Sequence[Path] = ()) -> Path:
    """Raw ext4 image for MOUNT with the base images and `archives` imported."""
    every = [*base_images(), *archives]
    programs = containerd_binaries()

    def build(folder: Path) -> None:
        need_root()
        with step(f"importing {len(every)} container images into the nodes' disk"):
            _import(folder, programs, every)
            tree = folder / "tree"
            ext4_image(tree, folder / "runtime.img", label=LABEL, size_mib=DISK_MIB)
            shutil.rmtree(tree)

    key = digest(str(programs), [str(archive) for archive in every], "v1")
    return entry("cluster-runtime", key, build) / "runtime.img"


def _import(folder: Path, programs: Path, archives: Sequence[Path]) -> None:
    """Fill folder/tree by a containerd whose mounts nobody else sees."""
    config, log, socket = folder / "config.toml", folder / "containerd.log", folder / "socket"
    config.write_text(_CONFIG.format(folder=folder))
    command = [program("unshare"), "--mount", str(programs / "containerd"), "--config", str(config)]
    with log.open("wb") as output:
        containerd = spawn(command, stdout=output)
    try:
        _wait_for(socket, containerd, log)
        for archive in archives:
            ctr = [str(programs / "ctr"), f"--address={socket}", "--namespace=k8s.io"]
            run([*ctr, "images", "import", str(archive)], timeout=300)
    finally:
        stop(containerd)
        shutil.rmtree(folder / "state", ignore_errors=True)


def _wait_for(socket: Path, containerd: subprocess.Popen[bytes], log: Path) -> None:
    limit = time.monotonic() + _START_SECONDS
    while not socket.exists():
        if containerd.poll() is not None or time.monotonic() > limit:
            raise HostError(f"containerd does not start: {log.read_text()[-2000:]}")
        time.sleep(0.05)
