# SPDX-License-Identifier: Apache-2.0
"""Disk images made without mounts: ext4 from a folder, qcow2 overlays.

Owns the calls of mke2fs and qemu-img. Must not know what the images are for.
"""

from pathlib import Path

from tests.bed.host import program, run

MIB = 1 << 20


def ext4_image(source: Path, image: Path, *, label: str, size_mib: int | None = None) -> None:
    """Write a sparse ext4 image with the contents of a folder.

    Without a size the image is a little larger than the contents: meant to be read only, so it
    has no journal.
    """
    if size_mib is None:
        used = int(run(["du", "-s", "--block-size=1M", source]).split()[0])
        size_mib = used * 13 // 10 + 24
        options = ["-O", "^has_journal", "-m", "0"]
    else:
        options = ["-J", "size=16", "-m", "1"]
    with image.open("wb") as f:
        f.truncate(size_mib * MIB)
    mke2fs = program("mke2fs")
    run([mke2fs, "-q", "-t", "ext4", "-L", label, *options, "-d", source, "-F", image])


def overlay(base: Path, image: Path) -> None:
    """A fresh qcow2 on top of a raw image that is never written."""
    run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", base, image])
