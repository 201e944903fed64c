# SPDX-License-Identifier: Apache-2.0
"""docs/reliability.md says what was measured, names every cell, and each test it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.cluster.matrix import page, results
from tests.cluster.matrix.acts import ACTS
from tests.cluster.matrix.table import CELLS, NONSENSE, QUICK, Cell, Fault, Phase, Side, expected
from tests.cluster.matrix.watching import Moment, Said

ROOT = Path(__file__).resolve().parents[2]
TEXT = page.PAGE.read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`")


def test_the_page_is_what_the_results_say() -> None:
    assert page.filled(TEXT, results.load(page.DATA)) == TEXT, "make faults-page"


def test_every_cell_is_on_the_page() -> None:
    sections = re.split(r"^### ", TEXT, flags=re.MULTILINE)
    for cell in CELLS:
        (section,) = [s for s in sections if s.startswith(f"{cell.phase.capitalize()}\n")]
        row = f"| {cell.fault} | {cell.side} | {expected(cell)} |"
        assert section.count(row) == 1, cell


def test_every_fault_has_every_phase_and_side_or_a_reason() -> None:
    known = {str(cell) for cell in CELLS} | set(NONSENSE)
    for fault in Fault:
        sides = (Side.CLUSTER,) if fault is Fault.API else (Side.EXPORTER, Side.IMPORTER)
        for side in sides:
            for phase in Phase:
                assert str(Cell(fault, phase, side)) in known
    assert ACTS.keys() == set(Fault)
    assert set(QUICK) <= set(CELLS)


def test_results_are_of_cells_that_there_are() -> None:
    names = {str(cell) for cell in CELLS}
    assert results.load(page.DATA).keys() <= names


def test_what_a_node_said_while_the_fault_was_made_is_known_at_once() -> None:
    """`ss -K` ends the link and returns later: a kernel that says so in between has said it."""
    said, moment = Said("b"), Moment(before=10.0, begun=10.4)
    said.add(9.0, ["kernel 0 0"])
    with pytest.raises(TimeoutError, match="b did not say it"):
        moment.until(said, lambda line: line == "kernel 0 0", 0.0)
    said.add(10.2, ["kernel 0 0"])
    said.add(12.44, ["kernel 1 0"])
    assert moment.until(said, lambda line: line == "kernel 0 0", 0.0) == 0.0
    assert moment.until(said, lambda line: line == "kernel 1 0", 0.0) == 2.0
    assert said.lines(10.0, 10.4) == ["-0.2 kernel 0 0", "+2.0 kernel 1 0"]


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="has not both"):
        page.filled("nothing", {})


def test_a_cell_without_a_result_has_no_figure() -> None:
    rows = [line for line in page.tables({}).splitlines() if line.endswith(f"| {page.NOT_RUN} |")]
    assert len(rows) == len(CELLS)
    assert not any(re.search(r"\d\.\d s", row) for row in rows)


def named() -> list[tuple[str, str]]:
    return sorted(set(NAMED.findall(TEXT)))


@pytest.mark.parametrize(("file", "function"), named(), ids="::".join)
def test_the_tests_that_the_page_names_exist(file: str, function: str) -> None:
    tree = ast.parse((ROOT / file).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    names = [node.name for node in tree.body if isinstance(node, kinds)]
    assert function in names or (not function and any(n.startswith("test_") for n in names))


def test_every_row_of_stated_behaviour_names_its_test() -> None:
    section = TEXT.partition("## Stated behaviour")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 6
    for row in rows:
        assert NAMED.search(row), row
