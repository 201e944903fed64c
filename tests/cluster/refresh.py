# SPDX-License-Identifier: Apache-2.0
"""The checkout's code into a running cluster: one more layer on the image that its nodes have.

Owns the way round a full build and a full import, which an emulated node needs minutes for. What
is not Python (extension, dependencies, Dockerfile) takes `down` and `up`; a module that was deleted
stays in the image until then.
"""

from __future__ import annotations

import compileall
import contextlib
import secrets
import shutil
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from tests.bed.errors import BedError
from tests.bed.progress import step
from tests.bed.wheel import CHECKOUT, native_digest
from tests.cluster import driver
from tests.cluster.bed import ClusterBed
from tests.cluster.images import Layer, extend_archive

_ARCHIVE = "/root/refresh.tar"


def refresh(bed: ClusterBed) -> None:
    """Put the checkout's modules into the nodes' image, apply the chart, roll the agents over.

    Raises:
        BedError: the extension's sources are not those that the image was built from.
    """
    if bed.native != native_digest():
        raise BedError("usbdra/_native has changed: it needs a new image, by `down` and `up`")
    archive = bed.spec.archives[0]
    package = package_folder(archive)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        extend_archive(archive, folder / "refresh.tar", _layer(package, folder / "tree"))
        with step("importing the new layer into every node"), ThreadPoolExecutor(4) as pool:
            tasks = [pool.submit(_load, bed, each, folder / "refresh.tar") for each in bed.nodes]
            for task in tasks:
                task.result()
    with step("rolling the pods over"):
        bed.api.apply(_stamped(driver.render(driver.bed_values())), namespace=driver.NAMESPACE)
        driver.ready(bed)


def _stamped(manifests: str) -> list[dict[str, Any]]:
    """The objects, with templates that differ from all before: their pods are made anew, once."""
    objects = [item for item in yaml.safe_load_all(manifests) if item]
    for item in objects:
        if item["kind"] in ("DaemonSet", "Deployment"):
            metadata = item["spec"]["template"]["metadata"]
            metadata.setdefault("annotations", {})["usbdra.test/refreshed"] = secrets.token_hex(4)
    return objects


def package_folder(archive: Path) -> str:
    """Where the image in an archive has the package, without the leading slash.

    Raises:
        BedError: nowhere.
    """
    with tarfile.open(archive) as outer:
        for blob in outer.getnames():
            stream = outer.extractfile(blob) if blob.startswith("blobs/") else None
            if stream is None:
                continue
            # a manifest or a configuration is no tar
            with contextlib.suppress(tarfile.ReadError), tarfile.open(fileobj=stream) as layer:
                for name in layer.getnames():
                    if name.endswith("site-packages/usbdra/__init__.py"):
                        return name.removesuffix("/__init__.py").lstrip("./")
    raise BedError(f"{archive} has no package usbdra")


def _layer(package: str, scratch: Path) -> bytes:
    """A layer with the checkout's modules, which the image's extension modules stay beside."""
    ignore = shutil.ignore_patterns("*.so", "*.c", "__pycache__")
    shutil.copytree(CHECKOUT / "usbdra", scratch / "usbdra", ignore=ignore)
    where = f"/{Path(package).parent}"
    compileall.compile_dir(scratch, quiet=1, stripdir=str(scratch), prependdir=where)
    layer = Layer()
    layer.tree(scratch / "usbdra", below=package)
    return layer.finish()


def _load(bed: ClusterBed, name: str, archive: Path) -> None:
    bed.machine(name).push(archive, _ARCHIVE)
    bed.nodes[name].ctr("images", "import", _ARCHIVE, timeout=300)
