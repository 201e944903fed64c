# SPDX-License-Identifier: Apache-2.0
"""An image of an OCI archive, laid out in a folder, and commands in it.

Owns the reading of archives and the way into their file systems. Must not know what should be in
them.
"""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bed.host import program

# The image's own, which test_it_says_what_it_is compares.
ENVIRONMENT = ["PATH=/opt/usbdra/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/"]


def read_json(archive: tarfile.TarFile, name: str) -> Any:
    """A JSON file of an archive."""
    stream = archive.extractfile(name)
    assert stream is not None
    return json.load(stream)


def blob(entry: Mapping[str, Any]) -> str:
    """Where an OCI archive has what a descriptor names."""
    return f"blobs/{entry['digest'].replace(':', '/')}"


def manifest(archive: tarfile.TarFile, name: str) -> Any:
    """The manifest of the one image in an archive, by way of the index; it must have that name."""
    (entry,) = read_json(archive, "index.json")["manifests"]
    assert entry["annotations"] == {"io.containerd.image.name": name}
    return read_json(archive, blob(entry))


@contextmanager
def unpacked(archive: Path, name: str, folder: Path) -> Iterator[Path]:
    """The image's file system in a folder, removed at the end."""
    with tarfile.open(archive) as outer:
        for layer in manifest(outer, name)["layers"]:
            stream = outer.extractfile(blob(layer))
            assert stream is not None
            with tarfile.open(fileobj=stream) as inner:
                _unpack(inner, folder)
    folder.chmod(0o755)  # pytest's are for the owner alone
    try:
        yield folder
    finally:
        subprocess.run(["rm", "-rf", folder], check=True)


def _unpack(layer: tarfile.TarFile, folder: Path) -> None:
    """Lay a layer over what is there; `.wh.NAME` takes NAME away (OCI image-spec, whiteouts)."""
    for member in layer:
        path = folder / member.name
        if path.name.startswith(".wh."):
            subprocess.run(["rm", "-rf", path.with_name(path.name[4:])], check=True)
        else:
            layer.extract(member, folder, filter="fully_trusted")


def as_user(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run in the image as a pod that is not root and cannot write: all of it read only."""
    script = (
        'mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"; root=$1; shift; '
        'exec chroot --userspec=12345:12345 "$root" "$@"'
    )
    alone = [program("unshare"), "--mount", "--net", "sh", "-euc", script, "sh", str(root)]
    return subprocess.run(
        [*alone, "/usr/bin/env", "-i", *ENVIRONMENT, *command],
        capture_output=True,
        text=True,
        check=False,
    )
