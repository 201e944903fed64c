# SPDX-License-Identifier: Apache-2.0
"""Writes what is installed where, exactly: versions and the hashes of the files themselves.

    make lock

Owns three files: requirements.txt (what the image holds beside the program), build.txt (what builds
the program for it), and tests/requirements.txt (what building, checking and testing needs on a
developer's machine and in CI). Installs nothing: pip resolves for the image's Python and for each
of its processors, uv for every Python and system that the project names.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PYTHON = "3.11"  # of Debian bookworm, the base in the Dockerfile
MACHINES = ("x86_64", "aarch64")
# Wheels for its glibc 2.36 and older, the newest first as pip of the image prefers them.
GLIBC = (36, 35, 34, 31, 28, 27, 26, 24, 17)
GROUPS = ("build", "test", "lint", "fuzz", "audit")
HEAD = "# SPDX-License-Identifier: Apache-2.0\n# {}\n# Written by `make lock`.\n"


class Locked(NamedTuple):
    """One package: its version, and the files that may be installed, by sha256."""

    version: str
    hashes: frozenset[str]


def project() -> Any:
    """What pyproject.toml says."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def runtime(said: Any) -> list[str]:
    """Requirements of the program with all that a cluster needs, and what it may be told to do."""
    table = said["project"]
    more = table["optional-dependencies"]
    return [*table["dependencies"], *more["cluster"], *more["otel"]]


def resolve(requirements: list[str], machine: str) -> dict[str, Locked]:
    """Newest allowed version of each and of all they need, and the wheel that a machine gets."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--report=-"]
    command += ["--ignore-installed", "--only-binary=:all:", f"--python-version={PYTHON}"]
    command += [f"--platform=manylinux_2_{minor}_{machine}" for minor in GLIBC]
    command += [f"--platform=manylinux2014_{machine}", f"--platform=linux_{machine}"]
    command += ["--target=/nonexistent", *requirements]  # pip asks for one; nothing goes there
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
    found = {}
    for item in json.loads(done.stdout)["install"]:
        name = item["metadata"]["name"].lower().replace("_", "-")
        sha256 = item["download_info"]["archive_info"]["hashes"]["sha256"]
        found[name] = Locked(item["metadata"]["version"], frozenset([sha256]))
    return found


def merge(machines: dict[str, dict[str, Locked]]) -> dict[str, Locked]:
    """One lock for all machines. Raises ValueError where they would differ in more than files."""
    merged: dict[str, Locked] = {}
    for machine, found in machines.items():
        for name, locked in found.items():
            known = merged.get(name, Locked(locked.version, frozenset()))
            if known.version != locked.version:
                raise ValueError(f"{name}: {known.version}, but {locked.version} on {machine}")
            merged[name] = Locked(locked.version, known.hashes | locked.hashes)
        if missing := merged.keys() - found.keys():
            raise ValueError(f"not on {machine}: {', '.join(sorted(missing))}")
    return merged


def write(file: Path, what: str, packages: dict[str, Locked]) -> None:
    """A file for `pip install --require-hashes --requirement`."""
    lines = [HEAD.format(what)]
    for name, locked in sorted(packages.items()):
        hashes = [f"    --hash=sha256:{sha256}" for sha256 in sorted(locked.hashes)]
        lines.append(" \\\n".join([f"{name}=={locked.version}", *hashes]) + "\n")
    file.write_text("".join(lines))


def lock(file: Path, what: str, requirements: list[str]) -> None:
    """Resolve for every machine and write."""
    write(file, what, merge({machine: resolve(requirements, machine) for machine in MACHINES}))


def lock_tools(file: Path, constraints: Path) -> None:
    """Resolve the dependency groups, with the image's versions where the image has them."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal"]
    command += [f"--python-version={PYTHON}", "--generate-hashes", "--no-header", "--no-annotate"]
    command += [f"--group={name}" for name in GROUPS]
    command += ["--extra=cluster", "--extra=otel", f"--constraint={constraints}", "pyproject.toml"]
    done = subprocess.run(  # noqa: S603
        command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    file.write_text(HEAD.format("What building, checking and testing needs.") + done.stdout)


def main() -> None:
    """Write all three."""
    said = project()
    lock(HERE / "requirements.txt", "What the image holds beside the program.", runtime(said))
    lock(HERE / "build.txt", "What builds the program.", said["build-system"]["requires"])
    lock_tools(ROOT / "tests/requirements.txt", HERE / "requirements.txt")


if __name__ == "__main__":
    main()
