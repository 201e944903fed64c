# SPDX-License-Identifier: Apache-2.0
"""Every field report has a test named by its number."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
REPORTS = range(1, 71)
NAMED = re.compile(r"(?<![a-z0-9])r(\d\d)(?![0-9])")


def functions(path: Path) -> list[str]:
    """Names of the test functions of a file."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    names = [node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]
    return [name for name in names if name.startswith("test_")]


@pytest.fixture(scope="module")
def named() -> dict[int, list[str]]:
    """Number of a report to the test functions whose names contain it."""
    found: dict[int, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for name in functions(path):
            for number in NAMED.findall(name):
                found.setdefault(int(number), []).append(f"{path.name}::{name}")
    return found


@pytest.mark.parametrize("number", REPORTS, ids=lambda n: f"R{n:02d}")
def test_report_has_a_test(named: dict[int, list[str]], number: int) -> None:
    assert named.get(number), f"no test named test_r{number:02d}_..."
