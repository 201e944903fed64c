# SPDX-License-Identifier: Apache-2.0
"""What an image's build would fetch, fetched beforehand: its base, Debian packages, wheels.

Owns the files; the build itself has no network. The Dockerfile is read for its base and for the
packages it installs, so that neither is written twice.
"""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path

from tests.bed.apt import SUITE, Archive, acquire_options, sources
from tests.bed.cache import digest, entry
from tests.bed.host import need_root, program, run
from tests.bed.progress import step
from tests.bed.rootfs import EXCLUDED
from tests.bed.wheel import CHECKOUT

FOLDER = CHECKOUT / "deploy/image"
STATUS = "var/lib/dpkg/status"
# Debian's own container images have usr-is-merged in place of usrmerge, which brings all of Perl.
_MERGED = "/usr/share/mmdebstrap/hooks/merged-usr"
_PIN = "etc/apt/preferences.d/usrmerge"
# As Debian's container images: no documents but the licences.
_DOCUMENTS = (
    *(f"path-exclude={pattern}" for pattern in EXCLUDED),
    "path-include=/usr/share/doc/*/copyright",
)
_HOOKS = (
    f"--hook-dir={_MERGED}",
    f'--setup-hook=printf "Package: usrmerge\\nPin: release *\\nPin-Priority: -1\\n" > "$1/{_PIN}"',
    f'--customize-hook=rm "$1/{_PIN}"',
    '--customize-hook=: > "$1/etc/apt/sources.list"',
    '--customize-hook=rm "$1/etc/hostname" "$1/etc/resolv.conf"',  # this machine's
)


@dataclass(frozen=True)
class Recipe:
    """What the Dockerfile says that the feed needs to know."""

    base: str
    packages: tuple[tuple[str, ...], ...]


def recipe(text: str) -> Recipe:
    """The base's name and the packages of each `apt-get install`, in order."""
    base = re.search(r"^ARG BASE=(\S+)$", text, re.MULTILINE)
    if base is None:
        raise ValueError("the Dockerfile has no ARG BASE")
    flat = text.replace("\\\n", " ")
    installs = re.findall(r"apt-get install --yes --no-install-recommends ([^&\n]+)", flat)
    return Recipe(base[1], tuple(tuple(found.split()) for found in installs))


def base_tar() -> Path:
    """A small Debian as the pinned base is, an uncompressed tar."""

    def build(folder: Path) -> None:
        need_root()
        with step(f"building the image's Debian {SUITE} base"):
            command = ["mmdebstrap", "--mode=root", "--variant=minbase", "--quiet"]
            command += [f"--aptopt={option}" for option in acquire_options()]
            command += ['--aptopt=APT::Install-Recommends "false"', *_HOOKS]
            command += [f"--dpkgopt={rule}" for rule in _DOCUMENTS]
            command += [SUITE, str(folder / "base.tar")]
            run([*command, *sources()], env={**os.environ, "SOURCE_DATE_EPOCH": "0"})

    return entry("image-base", digest(SUITE, _DOCUMENTS, _HOOKS, "v3"), build) / "base.tar"


def package_feed(packages: tuple[tuple[str, ...], ...]) -> Path:
    """A flat apt repository with all that the base needs for each set of packages."""
    base = base_tar()

    def build(folder: Path) -> None:
        with step("fetching the Debian packages of the image's build"):
            status = folder / "status"
            with tarfile.open(base) as tar:
                member = tar.extractfile(f"./{STATUS}")
                assert member is not None
                status.write_bytes(member.read())
            archive, debs = Archive(), folder / "debs"
            archive.refresh()
            archive.download_upgrades(status, debs)
            for names in packages:
                archive.download_for(status, names, debs)
            (debs / "Packages").write_text(
                "".join(_index(deb) for deb in sorted(debs.glob("*.deb")))
            )

    return entry("image-packages", digest(str(base), packages, "v2"), build) / "debs"


def _index(deb: Path) -> str:
    """The package's paragraph of a repository's Packages file (deb-control(5), apt-ftparchive)."""
    control = run([program("dpkg-deb"), "--field", str(deb)]).rstrip("\n")
    data = deb.read_bytes()
    place = f"Filename: ./{deb.name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}"
    return f"{control}\n{place}\n\n"
