# SPDX-License-Identifier: Apache-2.0
"""The image as deploy/image/Dockerfile makes it: what is in it, what is not, who may run it."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.bed.host import program
from tests.cluster import driver
from tests.cluster.usbdra_image import usbdra_archive

# Uncompressed; a registry sends about a third. Two thirds are the kubernetes client's models.
MOST_MIB = 330
# What a build needs and a running program does not.
TOOLS = ("as", "cc", "cython", "gcc", "ld", "make", "pip", "pip3", "wheel")
# The image's own, which test_it_says_what_it_is compares.
ENVIRONMENT = ["PATH=/opt/usbdra/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/"]


@pytest.fixture(scope="module")
def archive() -> Path:
    """The archive that the bed's nodes get."""
    return usbdra_archive(driver.VERSION)


@pytest.fixture(scope="module")
def root(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The image's file system."""
    folder = tmp_path_factory.mktemp("image")
    with tarfile.open(archive) as outer:
        for layer in manifest(outer)["layers"]:
            stream = outer.extractfile(blob(layer))
            assert stream is not None
            with tarfile.open(fileobj=stream) as inner:
                unpack(inner, folder)
    folder.chmod(0o755)  # pytest's are for the owner alone
    yield folder
    subprocess.run(["rm", "-rf", folder], check=True)


def manifest(archive: tarfile.TarFile) -> Any:
    """The image's manifest, by way of the index."""
    (entry,) = _json(archive, "index.json")["manifests"]
    name = f"localhost/usbdra:{driver.VERSION}"
    assert entry["annotations"] == {"io.containerd.image.name": name}
    return _json(archive, blob(entry))


def blob(entry: Mapping[str, Any]) -> str:
    """Where an OCI archive has what a descriptor names."""
    return f"blobs/{entry['digest'].replace(':', '/')}"


def unpack(layer: tarfile.TarFile, folder: Path) -> None:
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


def test_any_user_runs_it_on_a_read_only_root(root: Path) -> None:
    said = as_user(root, "usbdra", "--version")
    assert said.returncode == 0, said.stderr
    assert not said.stderr
    assert said.stdout.split()[-1] == driver.VERSION


def test_every_part_finds_its_libraries(root: Path) -> None:
    code = (
        "import grpc, pyroute2, pyudev, cryptography.x509, kubernetes.aio.client\n"
        "import usbdra.agent.daemon, usbdra._native.ktls\n"
        "pyudev.Context()"
    )
    said = as_user(root, "/opt/usbdra/bin/python", "-c", code)
    assert said.returncode == 0, said.stderr
    assert not said.stderr


def test_nothing_of_the_build_is_left(root: Path) -> None:
    found = {path.name for folder in ("bin", "sbin") for path in root.glob(f"**/{folder}/*")}
    assert "python3" in found
    assert found.isdisjoint(TOOLS)
    assert not list((root / "var/lib/apt/lists").iterdir())
    assert not list(root.glob("opt/usbdra/lib/python3*/site-packages/pip*"))
    sources = ("*.pyx", "*.c", "*.h", "*.whl")
    assert not [path for kind in sources for path in (root / "opt").rglob(kind) if _ours(path)]
    assert as_user(root, "/opt/usbdra/bin/python", "-m", "pip").returncode == 1


def test_files_are_readable_by_all_and_writable_by_root(root: Path) -> None:
    for path in (root / "opt/usbdra").rglob("*"):
        if not path.is_symlink():
            mode = path.stat().st_mode & 0o777
            assert mode & 0o444 == 0o444, path
            assert mode & 0o022 == 0, path


def test_it_says_what_it_is(archive: Path) -> None:
    with tarfile.open(archive) as outer:
        described = manifest(outer)
        config = _json(outer, blob(described["config"]))["config"]
        size = sum(layer["size"] for layer in described["layers"])
    assert config["Entrypoint"] == ["usbdra"]
    assert config["Env"] == ENVIRONMENT
    assert "User" not in config  # the pod says who
    assert config["Labels"]["org.opencontainers.image.version"] == driver.VERSION
    assert size < MOST_MIB << 20, f"{size >> 20} MiB"


def _ours(path: Path) -> bool:
    return "usbdra" in path.parts[path.parts.index("opt") + 2 :]


def _json(archive: tarfile.TarFile, name: str) -> Any:
    stream = archive.extractfile(name)
    assert stream is not None
    return json.load(stream)
