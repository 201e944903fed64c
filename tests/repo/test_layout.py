# SPDX-License-Identifier: Apache-2.0
"""The repository keeps its own rules: licence lines, versions, imports of pure modules."""

from __future__ import annotations

import ast
import subprocess
import tomllib
from pathlib import Path

import pytest

import usbdra

ROOT = Path(__file__).resolve().parents[2]
PURE = (
    "controller/acts.py",
    "controller/assignment.py",
    "controller/attach.py",
    "controller/attachstatus.py",
    "controller/attachworld.py",
    "controller/conditions.py",
    "controller/holder.py",
    "controller/hubs.py",
    "controller/links.py",
    "controller/machines.py",
    "controller/names.py",
    "controller/news.py",
    "controller/published.py",
    "controller/reconcile.py",
    "controller/runs.py",
    "controller/templates.py",
    "controller/uses.py",
    "controller/web/board.py",
    "controller/web/rows.py",
    "controller/world.py",
    "usbip/wire.py",
    "usbip/session.py",
    "vhci/table.py",
    "vhci/select.py",
    "discovery/names.py",
    "discovery/descriptors.py",
    "discovery/policy.py",
    "exporter/policy.py",
    "slices/build.py",
    "plugin/config.py",
    "plugin/plan.py",
    "state/claims.py",
    "state/codec.py",
    "state/recover.py",
    "tracing/settings.py",
    "tracing/traceparent.py",
    "transport/keys.py",
)
IMPURE = {
    "asyncio", "os", "socket", "time", "random", "grpc", "subprocess", "threading", "pathlib",
    "usbdra._native", "usbdra.kube",
}  # fmt: skip


NAMES = "usbdra.kube.custom"
"""Names of our kinds: pure, although it lives with the client."""


def tracked(*suffixes: str) -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    paths = [ROOT / p for p in done.stdout.decode().split("\0") if p]
    return [p for p in paths if p.suffix in suffixes and p.exists()]


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_every_source_file_names_its_licence() -> None:
    files = tracked(".py", ".pyx", ".pxd", ".pyi", ".sh")
    without = [p for p in files if "SPDX-License-Identifier: Apache-2.0" not in p.read_text()[:200]]
    without = [p for p in without if "_pb" not in p.parts]
    assert files
    assert not without


def test_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == usbdra.__version__
    assert f"## {usbdra.__version__}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("module", PURE)
def test_pure_modules_do_no_io(module: str) -> None:
    names = {n for n in imported(ROOT / "usbdra" / module) if not n.startswith(NAMES)}
    assert not {n for n in names for bad in IMPURE if n == bad or n.startswith(f"{bad}.")}


def test_modules_stay_small() -> None:
    """400 lines is the limit that needs a reason (house rule)."""
    files = [p for p in tracked(".py", ".pyx") if "usbdra" in p.parts and "_pb" not in p.parts]
    files = [p for p in files if (ROOT / "usbdra") in p.parents]
    long = {str(p.relative_to(ROOT)): n for p in files if (n := p.read_text().count("\n")) > 400}
    assert not long


def test_no_shell_in_the_product() -> None:
    files = [p for p in tracked(".py") if (ROOT / "usbdra") in p.parents]
    assert not [p for p in files if {"subprocess", "os.system"} & imported(p)]
