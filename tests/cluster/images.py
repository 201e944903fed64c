# SPDX-License-Identifier: Apache-2.0
"""Container images made without a registry and without a container tool.

Writes OCI image archives (image-spec v1.1, the form that `ctr images import` takes) from files
given by the caller. The same input gives the same bytes, so archives can be cached by their hash.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bed.host import program

PAUSE = "localhost/pause:1"
BUSYBOX = "localhost/busybox:1"
# Not compressed: an emulated processor reads a bigger file sooner than it unpacks a smaller one.
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"
# PID 1 has no default signal actions: without the trap a pod's end would wait for its grace period.
_PAUSE_SCRIPT = "trap 'exit 0' TERM INT; while :; do sleep 86400 & wait $!; done"
_ACCOUNTS = "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/tmp:/bin/sh\n"
_GROUPS = "root:x:0:\nuser:x:1000:\n"


@dataclass(frozen=True)
class ImageConfig:
    """What a container does when the pod does not say."""

    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str = ""


class Layer:
    """A file system built in memory. Entries keep their order, owners are root.

    Times are zero, but a tree's are kept: Python's compiled files name the time of their source.
    """

    def __init__(self) -> None:
        self._stream = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._stream, mode="w")  # noqa: SIM115 finish() closes it

    def directory(self, path: str, mode: int = 0o755) -> None:
        """Add a directory."""
        self._add(path, tarfile.DIRTYPE, mode)

    def link(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        self._add(path, tarfile.SYMTYPE, 0o777, link=target)

    def file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """Add a regular file."""
        self._add(path, tarfile.REGTYPE, mode, content=content)

    def tree(self, root: Path, below: str = "") -> None:
        """Add a directory tree of this host below `below`, in sorted order."""
        for path in sorted(root.rglob("*")):
            name = "/".join(filter(None, (below, path.relative_to(root).as_posix())))
            status = path.lstat()
            mode, time = status.st_mode & 0o7777, int(status.st_mtime)
            if path.is_symlink():
                self._add(name, tarfile.SYMTYPE, mode, link=str(path.readlink()), time=time)
            elif path.is_dir():
                self._add(name, tarfile.DIRTYPE, mode, time=time)
            elif path.is_file():
                self._add(name, tarfile.REGTYPE, mode, content=path.read_bytes(), time=time)

    def finish(self) -> bytes:
        """The layer as an uncompressed tar; nothing can be added afterwards."""
        self._tar.close()
        return self._stream.getvalue()

    def _add(
        self,
        path: str,
        kind: bytes,
        mode: int,
        *,
        content: bytes = b"",
        link: str = "",
        time: int = 0,
    ) -> None:
        entry = tarfile.TarInfo(path)
        entry.type, entry.mode, entry.linkname, entry.mtime = kind, mode, link, time
        entry.size = len(content)
        self._tar.addfile(entry, io.BytesIO(content))


def write_archive(target: Path, name: str, layers: Iterable[bytes], config: ImageConfig) -> None:
    """Write an OCI archive of one linux/amd64 image called `name` to `target`."""
    with tarfile.open(target, "w") as archive:
        blobs: set[str] = set()

        def blob(media_type: str, content: bytes) -> dict[str, Any]:
            digest = hashlib.sha256(content).hexdigest()
            if digest not in blobs:
                blobs.add(digest)
                _put(archive, f"blobs/sha256/{digest}", content)
            return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

        stored = [blob(_LAYER, layer) for layer in layers]
        diff_ids = [layer["digest"] for layer in stored]
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": blob(_CONFIG, _json(_image_config(config, diff_ids))),
            "layers": stored,
        }
        entry = blob(_MANIFEST, _json(manifest))
        entry["annotations"] = {"io.containerd.image.name": name}
        entry["platform"] = {"architecture": "amd64", "os": "linux"}
        index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [entry]}
        _put(archive, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _put(archive, "index.json", _json(index))


def pack_archive(parts: Path, target: Path, name: str) -> None:
    """Write an OCI archive called `name` from a folder as containers-transports(5) calls `dir:`.

    Such a folder has manifest.json, and each blob in a file named by its digest.
    """
    manifest = (parts / "manifest.json").read_bytes()
    content = json.loads(manifest)
    digest = hashlib.sha256(manifest).hexdigest()
    described = {"mediaType": _MANIFEST, "digest": f"sha256:{digest}", "size": len(manifest)}
    entry = described | {"annotations": {"io.containerd.image.name": name}}
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [entry]}
    with tarfile.open(target, "w") as archive:
        for blob in (content["config"], *content["layers"]):
            hexadecimal = blob["digest"].removeprefix("sha256:")
            archive.add(parts / hexadecimal, f"blobs/sha256/{hexadecimal}")
        _put(archive, f"blobs/sha256/{digest}", manifest)
        _put(archive, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _put(archive, "index.json", _json(index))


def extend_archive(source: Path, target: Path, layer: bytes) -> None:
    """Write an archive of the image in `source`, with one layer more, to `target`.

    Only what is new is in it: it can be imported where `source` has been imported before.
    """
    with tarfile.open(source) as archive:

        def load(name: str) -> Any:
            member = archive.extractfile(name)
            assert member is not None
            return json.loads(member.read())

        def load_blob(entry: Mapping[str, str]) -> Any:
            return load(f"blobs/{entry['digest'].replace(':', '/')}")

        index = load("index.json")
        manifest = load_blob(index["manifests"][0])
        config = load_blob(manifest["config"])
    with tarfile.open(target, "w") as archive:

        def add(media_type: str, content: bytes) -> dict[str, Any]:
            digest = hashlib.sha256(content).hexdigest()
            _put(archive, f"blobs/sha256/{digest}", content)
            return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

        added = add(_LAYER, layer)
        manifest["layers"].append(added)
        config["rootfs"]["diff_ids"].append(added["digest"])
        manifest["config"] = add(manifest["config"]["mediaType"], _json(config))
        index["manifests"][0] |= add(_MANIFEST, _json(manifest))
        _put(archive, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _put(archive, "index.json", _json(index))


def busybox_layer(static: Path) -> bytes:
    """A root file system of one static busybox, links for its applets, and a user 1000."""
    applets = subprocess.run(
        [str(static), "--list"], check=True, capture_output=True, text=True, timeout=10
    ).stdout.split()
    layer = Layer()
    for path in ("bin", "dev", "etc", "proc", "root", "sys", "usr", "usr/bin"):
        layer.directory(path)
    layer.directory("tmp", 0o1777)
    layer.file("etc/passwd", _ACCOUNTS.encode())
    layer.file("etc/group", _GROUPS.encode())
    layer.file("bin/busybox", static.read_bytes(), 0o755)
    for applet in sorted(set(applets) - {"busybox"}):
        layer.link(f"bin/{applet}", "busybox")
    return layer.finish()


def busybox() -> Path:
    """This host's static busybox.

    Raises:
        HostError: not installed (Debian package busybox-static).
    """
    return Path(program("busybox"))


def write_base_images(directory: Path) -> None:
    """Write the archives that every node needs: the pause image and the test image."""
    layer = busybox_layer(busybox())
    path = {"PATH": "/bin:/usr/bin"}
    pause = ImageConfig(entrypoint=("/bin/sh", "-c", _PAUSE_SCRIPT), environment=path)
    shell = ImageConfig(command=("/bin/sh",), environment=path)
    write_archive(directory / "pause.tar", PAUSE, [layer], pause)
    write_archive(directory / "busybox.tar", BUSYBOX, [layer], shell)


def _image_config(config: ImageConfig, diff_ids: list[str]) -> dict[str, Any]:
    return {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Entrypoint": list(config.entrypoint),
            "Cmd": list(config.command),
            "Env": [f"{key}={value}" for key, value in sorted(config.environment.items())],
            "User": config.user,
        },
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    }


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _put(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
