# SPDX-License-Identifier: Apache-2.0
"""The project's container image, built by deploy/image/Dockerfile as it stands, without network,
and the list of what is in it.

Owns the calls of buildah and the store of the stages that change seldom. The base carries the
very name that the Dockerfile pins (its digest apart: no registry made it); apt and pip find what
they ask for in folders (`image_feed`).
"""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bed.cache import digest, entry, locked, tree_digest
from tests.bed.host import need_root, program, run
from tests.bed.progress import step
from tests.bed.wheel import CHECKOUT, SOURCES, build_wheels
from tests.cluster import image_feed
from tests.cluster.images import pack_archive
from tests.locks import pins

NAME = "localhost/usbdra"
SBOM = "usr/share/sbom/usbdra.cdx.json"
_STAGES = ("environment", "runtime", "foundation")  # nothing of the program is in them
_LOCKS = ("build.txt", "requirements.txt")
_RECIPE = (*_LOCKS, "sbom.py")
_SOURCES = ("usbdra", "setup.py", "pyproject.toml", "README.md", "LICENSE")
_APT = "deb [trusted=yes] file:/feed/packages ./\n"
_PIP = "[global]\nno-index = true\nfind-links = /feed/wheels\n"


def usbdra_archive(tag: str) -> Path:
    """An image archive of the working tree, named NAME:tag, as `ctr images import` takes it.

    Beside it stands the CycloneDX document that is in it (`usbdra_sbom`).
    """
    store = _store()
    sources = [CHECKOUT / name for name in _SOURCES]
    list_maker = image_feed.FOLDER / "sbom.py"

    def build(folder: Path) -> None:
        context, name = folder / "context", f"{NAME}:{tag}"
        _stage(context, sources)
        with locked(store.folder.parent / f"{store.folder.name}.use"), step(f"building {name}"):
            store.buildah("rm", "--all")  # left by a build that failed
            store.build(context, name, f"--build-arg=VERSION={tag}")
            # Not compressed: an emulated processor reads a bigger file sooner than it unpacks.
            how = ["--disable-compression", "--format=oci"]
            store.buildah("push", *how, name, f"dir:{folder}/parts")
            store.buildah("rmi", name)
            store.buildah("rmi", "--prune")
        pack_archive(folder / "parts", folder / "usbdra.tar", name)
        (folder / Path(SBOM).name).write_bytes(_last_layer_file(folder / "parts", SBOM))
        for scratch in (context, folder / "parts"):
            shutil.rmtree(scratch)

    made_from = tree_digest([*sources, list_maker], SOURCES)
    key = digest(store.folder.name, made_from, tag, "v5")
    return entry("usbdra-image", key, build) / "usbdra.tar"


def usbdra_sbom(tag: str) -> Path:
    """The CycloneDX document of that image."""
    return usbdra_archive(tag).with_name(Path(SBOM).name)


def _last_layer_file(parts: Path, name: str) -> bytes:
    """A file of the topmost layer; parts as containers-transports(5) calls `dir:`."""
    layer = json.loads((parts / "manifest.json").read_text())["layers"][-1]
    with tarfile.open(parts / layer["digest"].removeprefix("sha256:")) as tar:
        stream = tar.extractfile(name)
        assert stream is not None
        return stream.read()


@dataclass(frozen=True)
class _Store:
    """buildah's storage in one folder, and the feeds that a build in it sees."""

    folder: Path
    packages: Path
    wheels: Path

    def buildah(self, *words: str | Path) -> str:
        """Run buildah on this store; mounts and network end with it."""
        root = [f"--root={self.folder / 'storage'}", f"--runroot={self.folder / 'run'}"]
        alone = [program("unshare"), "--mount", "--net", "--fork", "--kill-child"]
        return run([*alone, program("buildah"), *root, *words], timeout=1500)

    def build(self, context: Path, name: str, *options: str) -> None:
        """Build the Dockerfile, or its stage named by an option, and tag the result."""
        settings = {"sources.list": _APT, "pip.conf": _PIP}
        for file, text in settings.items():
            (self.folder / file).write_text(text)
        volumes = {
            self.packages: "/feed/packages",
            self.wheels: "/feed/wheels",
            self.folder / "sources.list": "/etc/apt/sources.list",
            self.folder / "pip.conf": "/etc/pip.conf",
        }
        shown = [f"--volume={here}:{there}:ro" for here, there in volumes.items()]
        how = ["--isolation=chroot", "--pull-never", "--layers", "--build-arg=DIGEST=", *shown]
        recipe = f"--file={image_feed.FOLDER / 'Dockerfile'}"
        self.buildah("build", *how, *options, recipe, f"--tag={name}", context)


def _store() -> _Store:
    """A store with the base and the stages below the program's own."""
    need_root()
    text = (image_feed.FOLDER / "Dockerfile").read_text()
    recipe, base = image_feed.recipe(text), image_feed.base_tar()
    packages, wheels = image_feed.package_feed(recipe.packages), build_wheels(_requirements())

    def build(folder: Path) -> None:
        store, context = _Store(folder, packages, wheels), folder / "context"
        _stage(context, [])
        with step("building the stages of the image below the program"):
            container = store.buildah("from", "scratch").strip()
            store.buildah("add", container, base, "/")
            store.buildah("commit", "--rm", container, recipe.base)
            for stage in _STAGES:
                store.build(context, f"{NAME}-{stage}", f"--target={stage}")
        shutil.rmtree(context)

    locks = [(image_feed.FOLDER / name).read_text() for name in _LOCKS]
    key = digest(text, locks, str(base), str(packages), str(wheels), "v2")
    return _Store(entry("image-store", key, build), packages, wheels)


def _requirements() -> list[str]:
    """NAME==VERSION of all that the locks name; the build compares the hashes."""
    found = pins("".join((image_feed.FOLDER / name).read_text() for name in _LOCKS))
    return [f"{name}=={version}" for name, (version, _) in found.items()]


def _stage(context: Path, sources: Sequence[Path]) -> None:
    """A build context of its own: the checkout may change meanwhile."""
    keep = shutil.ignore_patterns("*.so", "*.c", "__pycache__")
    place = context / image_feed.FOLDER.relative_to(CHECKOUT)
    place.mkdir(parents=True)
    for name in _RECIPE:
        shutil.copy(image_feed.FOLDER / name, place)
    for path in sources:
        if path.is_dir():
            shutil.copytree(path, context / path.name, ignore=keep)
        else:
            shutil.copy(path, context)
