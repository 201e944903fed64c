# SPDX-License-Identifier: Apache-2.0
"""The package as a stranger gets it: the wheel, and the source, in empty environments."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(600)


def run(
    *command: str | Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, check=False, cwd="/", env=env
    )


def new_env(folder: Path) -> Path:
    done = run(sys.executable, "-m", "venv", folder)
    assert done.returncode == 0, done.stderr
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def wheel() -> Path:
    (found,) = (ROOT / "dist").glob("usbdra-*.whl")
    return found


def test_wheel_holds_every_extension_and_no_sources_of_them(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for module in ("sysfs", "vhci", "stub", "sockfd", "ktls", "bpf"):
        assert [n for n in names if n.startswith(f"usbdra/_native/{module}.") and n.endswith(".so")]
        assert f"usbdra/_native/{module}.pyi" in names
    assert not [n for n in names if n.endswith((".c", ".pyx")) or n.startswith("tests")]


def test_wheel_installs_into_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    python = new_env(tmp_path / "env")
    done = run(python, "-m", "pip", "install", "--quiet", wheel)
    assert done.returncode == 0, done.stderr
    command = tmp_path / "env" / "bin" / "usbdra"
    (tmp_path / "root").mkdir()
    shown = run(command, "--root", tmp_path / "root", "list", "-o", "json")
    assert (shown.returncode, shown.stdout.strip()) == (0, "[]"), shown.stderr


def test_source_installs_with_plain_pip(tmp_path: Path) -> None:
    python = new_env(tmp_path / "env")
    done = run(python, "-m", "pip", "install", "--quiet", ROOT)
    assert done.returncode == 0, done.stderr
    probe = "from usbdra._native import vhci; print(len(vhci.parse([])))"
    assert run(python, "-c", probe).stdout == "0\n"


def test_build_without_a_compiler_fails_loudly(tmp_path: Path) -> None:
    """No silent pure-Python fallback: the extension is the product."""
    env = {**os.environ, "CC": "/nonexistent/cc"}
    done = run(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", tmp_path, ROOT, env=env)
    assert done.returncode != 0
    assert "/nonexistent/cc" in done.stdout + done.stderr
    assert not list(tmp_path.glob("*.whl"))
