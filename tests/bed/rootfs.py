# SPDX-License-Identifier: Apache-2.0
"""Debian root trees: the disk that nodes boot, and the tree wheels are built in.

Owns the package lists and the mmdebstrap call. Must not contain anything of the project: the
wheel comes on a drive of its own.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.bed.apt import SUITE, acquire_options, sources
from tests.bed.cache import digest, entry
from tests.bed.host import need_root, run
from tests.bed.images import ext4_image
from tests.bed.progress import step

NODE_PACKAGES = (
    "alsa-utils",
    "ca-certificates",
    "crun",
    "iproute2",
    "iputils-ping",
    "kmod",
    "libudev1",
    "openssl",
    "procps",
    "python3",
    "runc",
    "strace",
    "udev",
    "usbip",
    "usbutils",
)
BUILDER_PACKAGES = ("gcc", "libc6-dev", "python3-dev", "python3-pip", "python3-venv")
# documentation in other languages and manuals: half the files, none of the use
EXCLUDED = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*", "/usr/share/doc/*")


@dataclass(frozen=True)
class RootSpec:
    """A node's root file system: extra packages and the size of its disk."""

    packages: tuple[str, ...] = ()
    size_mib: int = 2048


def _debootstrap(folder: Path, packages: tuple[str, ...]) -> None:
    need_root()
    argv = ["mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory", "--quiet"]
    argv += [f"--aptopt={option}" for option in acquire_options()]
    argv += ['--aptopt=Acquire::Languages "none"', f"--include={','.join(packages)}"]
    argv += [f"--dpkgopt=path-exclude={pattern}" for pattern in EXCLUDED]
    run([*argv, SUITE, folder, *sources()], timeout=1500)


def node_image(spec: RootSpec) -> Path:
    """Raw ext4 image of a node's root file system, from the cache or built now."""
    packages = tuple(sorted({*NODE_PACKAGES, *spec.packages}))

    def build(folder: Path) -> None:
        with step(f"building a Debian {SUITE} root disk, {len(packages)} packages"):
            tree = folder / "tree"
            _debootstrap(tree, packages)
            for name in ("lib/modules", "opt/usbdra", "opt/tests"):
                (tree / name).mkdir(parents=True, exist_ok=True)
            ext4_image(tree, folder / "root.img", label="root", size_mib=spec.size_mib)
            shutil.rmtree(tree)

    key = digest(packages, spec.size_mib, SUITE, EXCLUDED, "v1")
    return entry("root", key, build) / "root.img"


def builder_tree() -> Path:
    """Folder with a Debian root that has a C compiler and Python's headers."""

    def build(folder: Path) -> None:
        with step("building the tree that wheels are built in"):
            _debootstrap(folder / "tree", BUILDER_PACKAGES)

    return entry("builder", digest(BUILDER_PACKAGES, SUITE, EXCLUDED, "v1"), build) / "tree"
