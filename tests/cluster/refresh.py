# SPDX-License-Identifier: Apache-2.0
"""The checkout's code into a running cluster: one more layer on the image that its nodes have.

Owns the way round a full build and a full import, which an emulated node needs minutes for. It
does not see a change of dependencies or of the Dockerfile: for those, `down` and `up`.
"""

from __future__ import annotations

import compileall
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.bed.progress import step
from tests.bed.wheel import wheel
from tests.cluster import driver
from tests.cluster.bed import ClusterBed
from tests.cluster.images import Layer, extend_archive

_ARCHIVE = "/root/refresh.tar"


def refresh(bed: ClusterBed) -> None:
    """Build the wheel, put it into the nodes' image, roll the agents over to it."""
    package = _package_folder(bed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        layer = _layer(wheel(), package, folder / "tree")
        extend_archive(bed.spec.archives[0], folder / "refresh.tar", layer)
        with step("importing the new layer into every node"), ThreadPoolExecutor(4) as pool:
            tasks = [pool.submit(_load, bed, each, folder / "refresh.tar") for each in bed.nodes]
            for task in tasks:
                task.result()
    with step("rolling the agents over"):
        roll = ["-n", driver.NAMESPACE, "rollout"]
        bed.api.kubectl(*roll, "restart", "daemonset/usbdra-agent")
        driver.ready(bed)


def _package_folder(bed: ClusterBed) -> str:
    """Where the image has the package."""
    code = "import usbdra; print(usbdra.__path__[0])"
    target = "daemonset/usbdra-agent"
    words = ["exec", f"--namespace={driver.NAMESPACE}", target, "--", "python3", "-c", code]
    return bed.api.kubectl(*words).strip()


def _layer(wheel_file: Path, package: str, scratch: Path) -> bytes:
    """A layer in which `package` holds the wheel's modules, and nothing of what was there."""
    with zipfile.ZipFile(wheel_file) as archive:
        members = [name for name in archive.namelist() if name.startswith("usbdra/")]
        archive.extractall(scratch, members)
    compileall.compile_dir(scratch, quiet=1, stripdir=str(scratch), prependdir=package)
    layer = Layer()
    layer.directory(package.lstrip("/"))
    layer.file(f"{package.lstrip('/')}/.wh..wh..opq", b"")  # hides the folder of the layers below
    layer.tree(scratch / "usbdra", below=package.lstrip("/"))
    return layer.finish()


def _load(bed: ClusterBed, name: str, archive: Path) -> None:
    bed.machine(name).push(archive, _ARCHIVE)
    bed.nodes[name].ctr("images", "import", _ARCHIVE, timeout=300)
