# SPDX-License-Identifier: Apache-2.0
"""The project's container image, built offline as deploy/image/Dockerfile says.

Owns the bed's way to it: a Debian root from packages in place of the pinned base, the very
environment that the kernel bed's nodes get on top. Nothing of the checkout gets in but the wheel.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.bed.apt import SUITE, acquire_options, sources
from tests.bed.cache import digest, entry
from tests.bed.host import need_root, program, run
from tests.bed.progress import step
from tests.bed.rootfs import EXCLUDED
from tests.bed.wheel import project_image
from tests.cluster.images import ImageConfig, Layer, write_archive

NAME = "localhost/usbdra"
HOME = "/opt/usbdra"
_PACKAGES = ("kmod", "libudev1", "python3")
# Debian's own container images have usr-is-merged in place of usrmerge, which brings all of Perl.
_MERGED = "/usr/share/mmdebstrap/hooks/merged-usr"
_PIN = "etc/apt/preferences.d/usrmerge"
_HOOKS = (
    f"--hook-dir={_MERGED}",
    f'--setup-hook=printf "Package: usrmerge\\nPin: release *\\nPin-Priority: -1\\n" > "$1/{_PIN}"',
    f'--customize-hook=rm "$1/{_PIN}"',
)
_PATH = f"{HOME}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def usbdra_archive(tag: str) -> Path:
    """An image archive of the working tree's wheel, named NAME:tag."""
    base, environment = _base_layer(), project_image("cluster")

    def build(folder: Path) -> None:
        with step(f"writing the image {NAME}:{tag}"):
            write_archive(
                folder / "usbdra.tar",
                f"{NAME}:{tag}",
                [base.read_bytes(), _environment_layer(environment, folder / "tree")],
                ImageConfig(command=("usbdra", "--help"), environment={"PATH": _PATH}),
            )

    key = digest(str(base), str(environment), tag, "v1")
    return entry("usbdra-image", key, build) / "usbdra.tar"


def _base_layer() -> Path:
    """An uncompressed tar of a small Debian with the interpreter that the wheel was built for."""

    def build(folder: Path) -> None:
        need_root()
        with step(f"building the image's Debian {SUITE} base"):
            command = ["mmdebstrap", "--mode=root", "--variant=minbase", "--quiet"]
            command += [f"--aptopt={option}" for option in acquire_options()]
            command += ['--aptopt=APT::Install-Recommends "false"', *_HOOKS]
            command += [f"--dpkgopt=path-exclude={pattern}" for pattern in EXCLUDED]
            command += [f"--include={','.join(_PACKAGES)}", SUITE, str(folder / "base.tar")]
            run([*command, *sources()], env={**os.environ, "SOURCE_DATE_EPOCH": "0"})

    return entry("image-base", digest(_PACKAGES, SUITE, EXCLUDED, _HOOKS), build) / "base.tar"


def _environment_layer(image: Path, scratch: Path) -> bytes:
    """The contents of the environment's ext4 image as a layer, read without a mount."""
    scratch.mkdir()
    run([program("debugfs"), "-R", f"rdump / {scratch}", image])
    shutil.rmtree(scratch / "lost+found", ignore_errors=True)
    layer = Layer()
    layer.directory("opt")
    layer.directory(HOME.lstrip("/"))
    layer.tree(scratch, below=HOME.lstrip("/"))
    shutil.rmtree(scratch)
    return layer.finish()
