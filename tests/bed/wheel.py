# SPDX-License-Identifier: Apache-2.0
"""The project's wheel, built for the nodes' Python and installed into a read-only image.

Owns the build in a Debian root without network: this machine downloads the wheels of the
dependencies, the build takes them from a folder. The image holds the installed wheel, never the
source tree; tests travel in an image of their own.
"""

import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

from tests.bed.cache import digest, entry, tree_digest
from tests.bed.host import program, run
from tests.bed.images import ext4_image
from tests.bed.progress import step
from tests.bed.rootfs import builder_tree

CHECKOUT = Path(__file__).resolve().parents[2]
PYTHON = "3.11"  # of Debian bookworm, the nodes' distribution
# wheels for glibc 2.36 and older
PLATFORMS = (
    *(f"manylinux_2_{minor}_x86_64" for minor in (36, 34, 31, 28, 24, 17, 12, 5)),
    "manylinux2014_x86_64",
    "manylinux2010_x86_64",
    "manylinux1_x86_64",
    "linux_x86_64",
)
SOURCES = (".py", ".pyi", ".pyx", ".pxd", ".pxi", ".h", ".typed", ".toml", ".md", "LICENSE")
# what goes into the tests image; the fakes and the repository's own checks need more than a node
TEST_FOLDERS = ("contract", "data", "fakes")


def _project() -> dict[str, Any]:
    return tomllib.loads((CHECKOUT / "pyproject.toml").read_text())


def _download(folder: Path, requirements: list[str]) -> None:
    """Fetch wheels for the nodes' Python with this machine's pip and its settings."""
    folder.mkdir(exist_ok=True)
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
    argv += ["--dest", str(folder), "--implementation", "cp", "--python-version", PYTHON]
    for abi in ("cp311", "abi3", "none"):
        argv += ["--abi", abi]
    for platform in PLATFORMS:
        argv += ["--platform", platform]
    run([*argv, *requirements], timeout=900)


def wheels_of(requirements: list[str]) -> Path:
    """Folder with the wheels of some requirements and all they need."""
    wanted = sorted(requirements)

    def build(folder: Path) -> None:
        with step(f"downloading wheels for {len(wanted)} requirements"):
            _download(folder, wanted)

    return entry("wheels", digest(wanted, PYTHON, PLATFORMS), build)


def build_wheels(requirements: list[str]) -> Path:
    """Folder with the wheels of some requirements and of what the project's own build needs."""
    return wheels_of([*requirements, *_project()["build-system"]["requires"], "wheel"])


def _in_builder(folder: Path, wheels: Path, script: str) -> None:
    """Run a shell script in the builder tree, without network; folder is its /work.

    The mounts live in a mount namespace of their own and end with the script.
    """
    tree = builder_tree()
    inner = """set -eu
        mount --bind "$1" "$2/mnt"
        mount -t tmpfs tmpfs "$2/tmp"
        mkdir "$2/tmp/wheels" "$2/tmp/opt"
        mount --bind "$3" "$2/tmp/wheels"
        exec chroot "$2" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LANG=C.UTF-8 \
            PIP_NO_INDEX=1 PIP_FIND_LINKS=/tmp/wheels PIP_NO_CACHE_DIR=1 /bin/sh -euc "$4"
        """
    argv = [program("unshare"), "--mount", "--net", "--fork", "--kill-child"]
    run([*argv, "sh", "-c", inner, "sh", folder, tree, wheels, script], timeout=1500)


def wheel() -> Path:
    """The project's wheel for the nodes."""
    sources = [CHECKOUT / name for name in ("usbdra", "setup.py", "pyproject.toml", "README.md")]
    present = [path for path in (*sources, CHECKOUT / "LICENSE") if path.exists()]
    wheels = build_wheels([])

    def build(folder: Path) -> None:
        with step("building the wheel for the nodes"):
            source = folder / "source"
            source.mkdir()
            for path in present:
                if path.is_dir():
                    keep = shutil.ignore_patterns("*.so", "*.c", "__pycache__")
                    shutil.copytree(path, source / path.name, ignore=keep)
                else:
                    shutil.copy(path, source)
            script = "pip wheel --quiet --no-deps --wheel-dir /mnt /mnt/source"
            _in_builder(folder, wheels, script)
            shutil.rmtree(source)

    key = digest(tree_digest(present, SOURCES), wheels.name, builder_tree().parent.name, "v1")
    (found,) = entry("wheel", key, build).glob("*.whl")
    return found


def native_digest() -> str:
    """What tells whether the extension of an earlier build is still the checkout's."""
    return digest(tree_digest([CHECKOUT / "usbdra/_native", CHECKOUT / "setup.py"], SOURCES))


def _environment(name: str, requirements: list[str], own: Path | None, extra: Path | None) -> Path:
    """Image with a Python environment for /opt/NAME, plus a folder copied beside it."""
    wheels = wheels_of(requirements)
    parts = [name, wheels.name, builder_tree().parent.name, "v2"]
    parts += [own.parent.name] if own else []
    parts += [tree_digest([extra])] if extra else []

    def build(folder: Path) -> None:
        with step(f"installing {name} into an image for the nodes"):
            if own:
                shutil.copy(own, folder)
            what = f"/mnt/{own.name}" if own else ""
            names = " ".join(f"'{r}'" for r in requirements)
            script = f"""
                mkdir /mnt/tree; mkdir -p /opt/{name}; mount --bind /mnt/tree /opt/{name}
                python3 -m venv --without-pip /opt/{name}
                pip --python /opt/{name}/bin/python install --quiet {names} {what}
                """
            _in_builder(folder, wheels, script)
            if extra:
                shutil.copytree(extra, folder / "tree" / "tests")
            ext4_image(folder / "tree", folder / "image", label=name)
            shutil.rmtree(folder / "tree")

    return entry("image", f"{name}-{digest(parts)}", build) / "image"


def project_image(*extras: str) -> Path:
    """ext4 image of /opt/usbdra: the installed wheel with its dependencies and programs.

    extras: optional dependencies of the project to install as well.
    """
    project = _project()["project"]
    optional = [r for extra in extras for r in project["optional-dependencies"][extra]]
    return _environment("usbdra", [*project["dependencies"], *optional], wheel(), None)


def tests_image() -> Path:
    """ext4 image of /opt/tests: pytest and the tests that run inside a node.

    Its interpreter also sees the packages of /opt/usbdra.
    """
    requirements = list(_project()["dependency-groups"]["test"])

    def collect(folder: Path) -> None:
        tests = CHECKOUT / "tests"
        for name in TEST_FOLDERS:
            if (tests / name).is_dir():
                ignore = shutil.ignore_patterns("__pycache__")
                shutil.copytree(tests / name, folder / "tests" / name, ignore=ignore)
        shutil.copy(CHECKOUT / "pyproject.toml", folder)

    present = [CHECKOUT / "tests" / name for name in TEST_FOLDERS]
    present = [path for path in (*present, CHECKOUT / "pyproject.toml") if path.exists()]
    extra = entry("testfiles", tree_digest(present), collect)
    return _environment("tests", requirements, None, extra)
