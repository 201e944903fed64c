# SPDX-License-Identifier: Apache-2.0
"""The project's lock files, read: what `make lock` writes and pip installs.

Owns their places and their form. Must not judge what they say.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMAGE = ROOT / "deploy/image/requirements.txt"
BUILD = ROOT / "deploy/image/build.txt"
TOOLS = ROOT / "tests/requirements.txt"


def pins(text: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Name -> (version, sha256 of the files that are allowed) of a requirements file."""
    found = {}
    for entry in re.sub(r"\\\n", " ", text).splitlines():
        if match := re.match(r"([a-z0-9][a-z0-9._-]*)==([^\s;]+)", entry):
            hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})", entry)
            found[match[1]] = match[2], frozenset(hashes)
    return found
