# SPDX-License-Identifier: Apache-2.0
"""Running programs on this machine for the bed.

Owns the one way the bed calls host programs. Must not be used by product code.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.bed.errors import HostError

Arg = str | Path
ADVICE = "`python3 tests/host_packages.py bed` installs what the bed needs"


def run(
    argv: Sequence[Arg],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 1800,
) -> str:
    """Run a program to its end and return its stdout.

    Raises HostError with the end of its output when it fails, is missing or takes too long.
    """
    words = [str(a) for a in argv]
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=None if env is None else {**os.environ, **env},
            cwd=cwd,
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError as e:
        raise HostError(f"{words[0]} is not installed; {ADVICE}") from e
    except subprocess.TimeoutExpired as e:
        raise HostError(f"{' '.join(words)[:300]}: no end after {timeout:.0f} s") from e
    if done.returncode != 0:
        tail = (done.stdout[-2000:] + done.stderr[-6000:]).strip()
        raise HostError(f"{' '.join(words)[:300]}: status {done.returncode}\n{tail}")
    return done.stdout


def need_root() -> None:
    """Raise HostError unless this process may make network namespaces and root trees."""
    if os.geteuid() != 0:
        raise HostError("the bed needs root (network namespace, taps, image trees): use sudo")


def program(name: str) -> str:
    """Full path of a host program, also in the sbin folders.

    Raises HostError when it is missing.
    """
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if path is None:
        raise HostError(f"{name} is not installed; {ADVICE}")
    return path
