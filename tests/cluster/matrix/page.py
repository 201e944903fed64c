# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of docs/reliability.md from what was measured. Pure but for the files.

Owns the part of the page between its two marks; the words around it are people's. A cell without
a result says so: no figure is made here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.cluster.matrix.table import CELLS, NONSENSE, Cell, Phase, expected

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/reliability.md"
DATA = ROOT / "docs/reliability.json"
BEGIN, END = "<!-- fault matrix: begin -->", "<!-- fault matrix: end -->"
NOT_RUN = "not run"
_HEAD = {
    Phase.BUSY: "| fault | side | must come of it | known to importer | known to exporter "
    "| link back | reads again | failed reads | result |",
}
_OTHERS = "| fault | side | must come of it | recovered | result |"


def tables(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The generated part of the page, without its marks."""
    return "\n".join(_lines(results)) + "\n"


def _lines(results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    done = [results[str(cell)] for cell in CELLS if str(cell) in results]
    good = sum(bool(found["ok"]) for found in done)
    yield f"{len(CELLS)} cells, {len(done)} of them run, {good} as they must be."
    yield ""
    yield from _about(done)
    for phase in Phase:
        yield f"### {phase.capitalize()}"
        yield ""
        head = _HEAD.get(phase, _OTHERS)
        yield head
        yield "|---" * (head.count("|") - 1) + "|"
        for cell in CELLS:
            if cell.phase is phase:
                yield _row(cell, results.get(str(cell)))
        yield ""
    yield "### Left out"
    yield ""
    yield "| cell | why |"
    yield "|---|---|"
    for name, why in NONSENSE.items():
        yield f"| {name} | {why} |"


def _about(done: list[Mapping[str, Any]]) -> Iterator[str]:
    if not done:
        return
    days = sorted({str(found["date"]) for found in done})
    kernels = sorted({tuple(sorted(found["kernels"].items())) for found in done})
    for pair in kernels:
        names = ", ".join(f"node {node}: {release}" for node, release in pair)
        yield f"Run on {days[0]} to {days[-1]}; {names}. The stick is in node a, the pod on node b."
    yield ""


def _row(cell: Cell, found: Mapping[str, Any] | None) -> str:
    first = [str(cell.fault), str(cell.side), str(expected(cell))]
    if found is None:
        empty = 5 if cell.phase is Phase.BUSY else 1
        return _joined([*first, *[""] * empty, NOT_RUN])
    known = found["known"]
    if cell.phase is Phase.BUSY:
        first += [_pair(known, "importer"), _pair(known, "exporter"), _seconds(found["link"])]
        first += [_seconds(found["recovered"]), str(found["failed_reads"])]
    else:
        first.append(_seconds(found["recovered"]))
    return _joined([*first, "as it must be" if found["ok"] else f"**not**: {_problem(found)}"])


def _problem(found: Mapping[str, Any]) -> str:
    return str(found["problem"]).splitlines()[0].replace("|", "/")[:160]


def _pair(known: Mapping[str, float], side: str) -> str:
    """Kernel, then agent."""
    both = [known.get(f"{side}.{who}") for who in ("kernel", "agent")]
    return ", ".join(_seconds(value) for value in both if value is not None)


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} s"


def _joined(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def filled(page: str, results: Mapping[str, Mapping[str, Any]]) -> str:
    """The page with its generated part made anew. Raises ValueError when a mark is missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{PAGE.name} has not both {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{tables(results)}\n{END}{after}"
