# SPDX-License-Identifier: Apache-2.0
"""docs/performance.md from its template and the runs beside it.

    python -m bench.page [--check]

Owns the page's tables and plots. What limits each figure is written by hand, in the template
`docs/performance/page.md.in`; there a line `{{table RUN GROUP}}` stands for numbers. RUN is
docs/performance/RUN.json, which bench/run.py wrote; GROUP is a pattern (fnmatch) of groups.

    {{machine RUN}}              when and where it ran, and under which load
    {{table RUN GROUP...}}       medians, ratios and goals, by group
    {{across RUN GROUP COLUMN KEY...}}  KEYs in the cells, a column for each COLUMN
    {{boxes RUN GROUP FILE}}     the distributions, as docs/performance/FILE.svg
    {{growth RUN GROUP...}}      how costs grow with a size, and whether that is as wanted
    {{curves RUN GROUP UNIT COST... FILE}}  these costs over sizes; UNIT `-` for a number
    {{flames RUN FILE}}          samples of call stacks (bench/flame), and where they end
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from bench.svg import boxes, curves, flames, quantity

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs/performance"
PAGE = ROOT / "docs/performance.md"
TEMPLATE = FOLDER / "page.md.in"
NOTE = "<!-- Made by `make performance-page` from performance/page.md.in: change that. -->"

_DIRECTIVE = re.compile(r"^\{\{(\w+) (.+)\}\}$", re.MULTILINE)
Row = Mapping[str, Any]


class Page:
    """The page's text and its plots, by file name."""

    def __init__(self, template: str, runs: Mapping[str, Mapping[str, Any]]) -> None:
        """Raises KeyError for a run that is not there, ValueError for a directive without rows."""
        self._runs = runs
        self.plots: dict[str, str] = {}
        text = _DIRECTIVE.sub(self._fill, template)
        first, rest = text.split("\n", 1)
        self.text = f"{first}\n\n{NOTE}\n{rest}"

    def _fill(self, match: re.Match[str]) -> str:
        word, rest = match[1], match[2]
        run, *words = re.findall(r'"[^"]*"|\S+', rest)
        words = [each.strip('"') for each in words]
        data = self._runs[run]
        found = self._table(word, words, data, match[0])
        found = found or self._drawing(word, words, data, match[0])
        if found is None:
            raise ValueError(f"{match[0]}: no such directive")
        return found

    @staticmethod
    def _table(word: str, words: list[str], data: Mapping[str, Any], said: str) -> str | None:
        if word == "machine":
            return machine_line(data["machine"])
        if word == "table":
            return table([row for each in words for row in _of(data["rows"], each, said)])
        if word == "across":
            group, column, *keys = words
            return across_table(_of(data["rows"], group, said), column, keys)
        if word == "growth":
            return growth_table([row for each in words for row in _of(data["growth"], each, said)])
        return None

    def _drawing(
        self, word: str, words: list[str], data: Mapping[str, Any], said: str
    ) -> str | None:
        if word == "boxes":
            group, file = words
            return self._boxes(_of(data["rows"], group, said), group, file)
        if word == "curves":
            group, unit, *costs, file = words
            return self._curves(_of(data["growth"], group, said), unit, costs, file)
        if word == "flames":
            (file,) = words
            return self._flames(data, file)
        return None

    def _boxes(self, rows: Sequence[Row], group: str, file: str) -> str:
        title = group if len({row["group"] for row in rows}) == 1 else file.replace("-", " ")
        marked = [(label(row["name"]), _seconds(row)) for row in rows]
        return self._plot(file, title, boxes(title, marked))

    def _curves(self, rows: Sequence[Row], unit: str, costs: Sequence[str], file: str) -> str:
        chosen = [row for row in rows if row["cost"] in costs]
        several = len({row["group"] for row in chosen}) > 1
        series = {
            (row["group"].partition(": ")[2] if several else row["cost"].replace("_", " ")): list(
                zip(row["sizes"], row["costs"], strict=True)
            )
            for row in chosen
        }
        title = file.replace("-", " ")
        unit = "" if unit == "-" else unit
        return self._plot(file, title, curves(title, chosen[0]["of"], unit, series))

    def _flames(self, data: Mapping[str, Any], file: str) -> str:
        title, shares = file.replace("-", " "), data["shares"]
        ends = "; ".join(f"{kind} {100 * part:.2g} %" for kind, part in shares.items())
        said = f"{data['samples']:,} samples of {data['rounds']:,} rounds end in: {ends}."
        return f"{self._plot(file, title, flames(title, data['stacks'], list(shares)))}\n\n{said}"

    def _plot(self, file: str, title: str, svg: str) -> str:
        self.plots[f"{file}.svg"] = svg
        return f"![{title}](performance/{file}.svg)"


def machine_line(facts: Mapping[str, Any]) -> str:
    """One sentence."""
    when = f"on {facts['date']}, " if "date" in facts else ""
    return (
        f"Measured {when}on {facts['cores']} cores ({facts['cpu']}), Linux "
        f"{facts['kernel'].partition('-')[0]}, Python {facts['python']}, load {facts['load']}."
    )


def label(name: str) -> str:
    """`test_one_event[16]` as `one event, 16`."""
    plain, _, case = name.removeprefix("test_").partition("[")
    return plain.replace("_", " ") + (f", {case.rstrip(']')}" if case else "")


def table(rows: Sequence[Row]) -> str:
    """Rows by group: what, median and its quarters, ratio to the yardstick, goal, what else."""
    lines = ["| what | median (quarters) | of its yardstick | goal | beside it |", "|---" * 5 + "|"]
    group = None
    for row in rows:
        if row["group"] != group:
            group = row["group"]
            lines.append(f"| **{group}** | | | | |")
        lines.append(f"| {' | '.join((label(row['name']), _median(row), *_judged(row)))} |")
    return "\n".join(lines)


def across_table(rows: Sequence[Row], column: str, keys: Sequence[str]) -> str:
    """One measurement in each cell: down by `over`, across by what `column` names.

    Both and the keys are of `more`, but for `ratio`; rows without the column are left out.
    """
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        more: dict[str, Any] = {**row["more"], "ratio": _judged(row)[0]}
        if column in more:
            over = str(more.get("over", row["group"]))
            told = ", ".join(str(more[key]) for key in keys if more.get(key))
            cells.setdefault(over, {})[more[column]] = told
    columns = list(dict.fromkeys(name for found in cells.values() for name in found))
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for over, found in cells.items():
        lines.append(f"| {over} | {' | '.join(found.get(name, '') for name in columns)} |")
    return "\n".join(lines)


def growth_table(rows: Sequence[Row]) -> str:
    """Costs at their sizes, the power that fits, the line, and whether that is as wanted."""
    lines = [
        "| what | cost | at sizes | power (last step) | as a line | wanted |",
        "|---" * 6 + "|",
    ]
    for row in rows:
        pairs = zip(row["sizes"], row["costs"], strict=True)
        sizes = "; ".join(f"{size:g}: {number(cost)}" for size, cost in pairs)
        wanted = "constant" if row["allowed"] == 0 else f"at most {row['of']}^{row['allowed']:g}"
        cells = (
            row["group"].partition(": ")[2] or row["group"],
            row["cost"].replace("_", " "),
            sizes,
            f"{row['power']:.2f} ({row['last']:.2f})",
            f"{number(row['base'])} + {number(row['each'])} x {row['of']}",
            f"{wanted}, {'met' if row['met'] else '**missed**'}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _of(rows: Sequence[Row], pattern: str, directive: str) -> list[Row]:
    """Those of the groups, each group's together, groups in the order of their first."""
    found = [row for row in rows if fnmatchcase(row["group"], pattern)]
    if not found:
        raise ValueError(f"{directive}: the run has no such group")
    order = list(dict.fromkeys(row["group"] for row in found))
    return sorted(found, key=lambda row: order.index(row["group"]))


def _seconds(row: Row) -> dict[str, float]:
    spread: Mapping[str, float] = row.get("spread_us") or {}
    names = ("min", "q1", "median", "q3", "max")
    return {name: float(spread.get(name, row["median_us"])) / 1e6 for name in names}


def _median(row: Row) -> str:
    found = _seconds(row)
    if found["q1"] == found["q3"]:
        return quantity(found["median"], "s")
    low, high = (quantity(found[name], "s") for name in ("q1", "q3"))
    return f"{quantity(found['median'], 's')} ({low} to {high})"


def _judged(row: Row) -> tuple[str, str, str]:
    ratio, more = row["ratio"], dict(row["more"])
    faster = " faster" if row["wants"] == "at least" else ""
    of = "" if ratio is None else ("1" if ratio == 1.0 else f"{ratio:.3g} x{faster}")
    goals = [] if row["goal"] is None else [f"{row['wants']} {row['goal']:g} x"]
    for key in [key for key in more if key.startswith("goal_")]:
        name = key.removeprefix("goal_")
        most = more.pop(key)
        if name in more:
            goals.append(f"{name.replace('_', ' ')} at most {most:g}")
    more.pop("p50_ms", None)  # the median, which is there
    goal = "; ".join(goals)
    if goal and row["met"] is not None:
        goal += ", met" if row["met"] else ", **missed**"
    beside = ", ".join(f"{key.replace('_', ' ')} {_value(more[key])}" for key in more)
    return of, goal, beside.replace("|", "\\|")


def _value(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def number(value: float) -> str:
    """Three digits, whole where there are more."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{float(f'{value:.3g}'):g}"


def load() -> Page:
    """The page as template and runs have it."""
    runs = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
    return Page(TEMPLATE.read_text(), runs)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, say what differs")
    check = parser.parse_args().check
    page = load()
    wanted = {PAGE: page.text} | {FOLDER / name: svg for name, svg in page.plots.items()}
    stale = [path for path, text in wanted.items() if not _has(path, text)]
    stray = [path for path in sorted(FOLDER.glob("*.svg")) if path not in wanted]
    for path in (*stale, *stray):
        print(f"{path.relative_to(ROOT)}: not what `make performance-page` makes")
    if check:
        return 1 if stale or stray else 0
    for path in stale:
        path.write_text(wanted[path])
    for path in stray:
        path.unlink()
    return 0


def _has(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(main())
