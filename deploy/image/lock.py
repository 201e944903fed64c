# SPDX-License-Identifier: Apache-2.0
"""Writes requirements.txt: the newest versions that pyproject.toml allows, for the image's Python.

    python deploy/image/lock.py

Owns that file. Installs nothing: pip resolves, for the base's Python and not for this machine's.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = "3.11"  # of Debian bookworm, the base in the Dockerfile
PLATFORMS = ("manylinux_2_34_x86_64", "manylinux_2_28_x86_64", "manylinux2014_x86_64")
HEAD = """\
# SPDX-License-Identifier: Apache-2.0
# What the image holds beside the program, exactly. Written by lock.py from pyproject.toml.
"""


def required() -> list[str]:
    """Requirements of the program with all that a cluster needs."""
    project = tomllib.loads((HERE.parents[1] / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["cluster"]]


def resolve(requirements: list[str]) -> dict[str, str]:
    """Name -> version of them and of all they need."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--report=-"]
    command += ["--ignore-installed", "--only-binary=:all:", f"--python-version={PYTHON}"]
    command += [f"--platform={name}" for name in PLATFORMS]
    command += ["--target=/nonexistent", *requirements]  # pip asks for one; nothing goes there
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
    found = [item["metadata"] for item in json.loads(done.stdout)["install"]]
    return {item["name"].lower().replace("_", "-"): item["version"] for item in found}


def main() -> None:
    """Resolve and write."""
    versions = resolve(required())
    lines = [f"{name}=={version}\n" for name, version in sorted(versions.items())]
    (HERE / "requirements.txt").write_text(HEAD + "".join(lines))


if __name__ == "__main__":
    main()
