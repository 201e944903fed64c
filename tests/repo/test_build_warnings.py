# SPDX-License-Identifier: Apache-2.0
"""The extension's C compiles without one warning."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(300)
def test_no_warning_of_the_compiler(tmp_path: Path) -> None:
    places = (f"--build-lib={tmp_path}/lib", f"--build-temp={tmp_path}/temp")
    done = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--force", "--parallel=2", *places],
        cwd=ROOT,
        env={**os.environ, "USBDRA_BUILD": "release", "CFLAGS": "-Werror"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning:" not in done.stderr, done.stderr
