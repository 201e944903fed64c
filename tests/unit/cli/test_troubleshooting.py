# SPDX-License-Identifier: Apache-2.0
"""docs/troubleshooting.md has a row for every reason word that the code can emit."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/troubleshooting.md").read_text()
WORD = re.compile(r"[A-Z][a-z]+(?:[A-Z]+[a-z]*)*")

TELLING = (
    "usbdra/nodesetup/state.py",
    "usbdra/agent/resets.py",
    "usbdra/exporter/hostresets.py",
    "usbdra/resetword.py",
    "usbdra/agent/plugs.py",
    "usbdra/controller/attach.py",
    "usbdra/controller/attachstatus.py",
    "usbdra/controller/conditions.py",
    "usbdra/controller/reconcile.py",
    "usbdra/plugin/status.py",
    "usbdra/plugin/telling.py",
    "usbdra/cli/kubectl/views.py",
)
"""Modules that choose a condition's or an Event's reason by a word of their own."""

NO_REASONS = frozenset({"True", "False", "Succeeded", "PodScheduled", "Prepare", "Pod"})
"""Words in them that are none."""


def own_words() -> Iterator[str]:
    """Every word that could be a reason, in the modules above."""
    for name in TELLING:
        for node in ast.walk(ast.parse((ROOT / name).read_text())):
            value = node.value if isinstance(node, ast.Constant) else None
            if isinstance(value, str) and WORD.fullmatch(value):
                yield value


def reasons_of_errors() -> Iterator[str]:
    """`reason` of every exception class of the package."""
    for path in (ROOT / "usbdra").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield from _reason(node)


def _reason(kind: ast.ClassDef) -> Iterator[str]:
    for line in kind.body:
        targets = line.targets if isinstance(line, ast.Assign) else []
        targets = [line.target] if isinstance(line, ast.AnnAssign) else targets
        value = getattr(line, "value", None)
        if any(getattr(t, "id", "") == "reason" for t in targets) and isinstance(
            value, ast.Constant
        ):
            yield str(value.value)


def documented() -> list[str]:
    """Reasons that have a row, in the page's order."""
    table = PAGE.split("## By reason", 1)[1]
    rows = re.findall(r"^\| ([A-Z][A-Za-z, ]*) \|", table, re.MULTILINE)
    return [word for row in rows for word in row.split(", ")]


def test_every_reason_has_one_row_and_no_row_is_of_none() -> None:
    emitted = {*own_words(), *filter(None, reasons_of_errors())} - NO_REASONS
    assert sorted(documented()) == sorted(emitted)


def test_rows_are_found_by_the_alphabet() -> None:
    table = PAGE.split("## By reason", 1)[1]
    rows = re.findall(r"^\| ([A-Z][A-Za-z]*)", table, re.MULTILINE)
    assert rows == sorted(rows)


SAYING = ("cli/kubectl/causes.py", "cli/kubectl/explain.py", "controller/conditions.py")


def sentences() -> Iterator[str]:
    """Texts that `explain` is made of, with dots for what is filled in."""
    for name in SAYING:
        for node in ast.walk(ast.parse((ROOT / "usbdra" / name).read_text())):
            if isinstance(node, ast.JoinedStr):
                yield "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "..."
                    for part in node.values
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_what_explain_says_is_quoted_as_it_says_it() -> None:
    table = PAGE.split("## Pending", 1)[1].split("## ", 1)[0]
    quotes = re.findall(r"^\| ([^|]*) \|", table, re.MULTILINE)[1:]
    assert len(quotes) > 10
    texts = list(sentences())
    for quote in quotes:
        for piece in re.split(r", | ?\((?:NotFound|NotReady)\)|\.\.\.", quote):
            words = piece.strip()
            assert not words or any(words in text for text in texts), (quote, words)
