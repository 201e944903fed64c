# SPDX-License-Identifier: Apache-2.0
"""docs/tracing.md lists exactly the spans and attributes that the program makes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MAKERS = frozenset(("span", "spanned", "phase", "rooted", "entry"))
TIMED = {"attach", "enumerate", "settle"}
"""Phases that importer/attach.py times, and names as it does for metrics and the log."""
PAGE = (ROOT / "docs/tracing.md").read_text()


def calls() -> Iterator[ast.Call]:
    """Calls that make a span of a name written there."""
    for path in (ROOT / "usbdra").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                function = node.func
                name = function.attr if isinstance(function, ast.Attribute) else ""
                name = function.id if isinstance(function, ast.Name) else name
                if name in MAKERS and isinstance(node.args[0].value, str):
                    yield node


def listed(head: str) -> set[str]:
    """The words in the first column of the table with this head."""
    rows = PAGE.partition(f"| {head} |")[2].partition("\n\n")[0].splitlines()[2:]
    return {word for row in rows for word in re.findall(r"`([^`]+)`", row.split("|")[1])}


def test_every_span_is_on_the_page() -> None:
    made = {node.args[0].value for node in calls() if isinstance(node.args[0], ast.Constant)}
    assert made | TIMED == listed("span")


def test_every_attribute_is_on_the_page() -> None:
    given = {f"usbdra.{word.arg}" for node in calls() for word in node.keywords if word.arg}
    assert given
    assert given <= listed("attribute")


@pytest.mark.parametrize("name", sorted(listed("span")))
def test_the_picture_has_what_a_prepare_of_another_nodes_device_has(name: str) -> None:
    elsewhere = {"NodeUnprepareResources", "Reattach", "release", "remove-files", "forget"}
    picture = PAGE.partition("```text\n")[2].partition("```")[0]
    assert (re.search(rf"(^|[ ├└]){name}\b", picture, re.MULTILINE) is None) == (name in elsewhere)
