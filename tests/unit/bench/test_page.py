# SPDX-License-Identifier: Apache-2.0
"""docs/performance.md is what its template and the runs beside it make."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.page import FOLDER, PAGE, ROOT, Page, label, load, number, table
from bench.svg import boxes, curves, quantity


def row(name: str, median_us: float, **more: Any) -> dict[str, Any]:
    plain = {
        "group": "g", "name": name, "median_us": median_us, "ratio": None, "goal": None,
        "wants": "at most", "met": None, "more": {},
    }  # fmt: skip
    return {**plain, **more}


GROWN = {
    "group": "scale: plug", "cost": "bytes", "of": "nodes", "sizes": [10, 30, 100],
    "costs": [5.0, 5.0, 5.0], "power": 0.0, "last": 0.0, "allowed": 0, "base": 5.0, "each": 0.0,
    "met": True,
}  # fmt: skip
MACHINE = {"cpu": "X", "cores": 2, "kernel": "6.1.0-y", "python": "3.11.7", "load": 0.5}


def made(template: str, *rows: dict[str, Any]) -> Page:
    run = {"machine": MACHINE, "rows": list(rows), "growth": [GROWN]}
    return Page(template, {"run": run})


def test_the_page_is_what_its_template_and_the_runs_make() -> None:
    page = load()
    assert PAGE.read_text() == page.text, "run `make performance-page`"
    plots = {path.name: path.read_text() for path in FOLDER.glob("*.svg")}
    assert plots == page.plots, "run `make performance-page`"


def test_every_plot_of_the_page_is_there() -> None:
    named = re.findall(r"!\[[^]]+\]\((performance/[^)]+)\)", PAGE.read_text())
    assert named
    assert all((ROOT / "docs" / name).is_file() for name in named)


def test_a_row_says_what_was_measured_and_against_what() -> None:
    text = table(
        [
            row("test_plain", 100.0, ratio=1.0),
            row(
                "test_ours[16]", 150.0, ratio=1.5, goal=1.3, met=False, more={"p99_ms": 3},
                spread_us={"min": 1.0, "q1": 140.0, "median": 150.0, "q3": 160.0, "max": 9e3},
            ),
            row("test_fast", 10.0, ratio=10.0, goal=3, met=True, wants="at least"),
        ]
    )  # fmt: skip
    assert text.splitlines()[2:] == [
        "| **g** | | | | |",
        "| plain | 100 µs | 1 |  |  |",
        "| ours, 16 | 150 µs (140 µs to 160 µs) | 1.5 x | at most 1.3 x, **missed** | p99 ms 3 |",
        "| fast | 10 µs | 10 x faster | at least 3 x, met |  |",
    ]


def test_a_measurement_stands_beside_its_goal() -> None:
    more = {"p99_ms": 80, "goal_p99_ms": 100, "goal_of_nothing": 1}
    (line,) = table([row("test_x", 1e6, met=True, more=more)]).splitlines()[3:]
    assert line == "| x | 1 s |  | p99 ms at most 100, met | p99 ms 80 |"


def test_directives_are_filled_in_place() -> None:
    page = made(
        '# P\n\n{{machine run}}\n\n{{boxes run "g" spread}}\n{{curves run "scale: *" B bytes up}}\n'
        "{{growth run *}}\nBy hand.\n",
        row("test_x", 5.0),
    )
    assert "on 2 cores (X), Linux 6.1.0, Python 3.11.7, load 0.5." in page.text
    assert page.text.startswith("# P\n\n<!-- Made by")
    assert page.text.endswith(
        "| plug | bytes | 10: 5; 30: 5; 100: 5 | 0.00 (0.00) | 5 + 0 x nodes | constant, met |\n"
        "By hand.\n"
    )
    assert set(page.plots) == {"spread.svg", "up.svg"}


def test_rows_of_a_group_stand_together() -> None:
    rows = [row("test_a", 1.0), row("test_b", 1.0, group="h"), row("test_c", 1.0)]
    text = made("# P\n{{table run *}}\n", *rows).text
    names = [line.split("|")[1].strip(" *") for line in text.splitlines() if "|" in line]
    assert names[2:] == ["g", "a", "c", "h", "b"]


@pytest.mark.parametrize("line", ["{{table run nothing}}", "{{picture run g}}"])
def test_a_directive_that_shows_nothing_is_an_error(line: str) -> None:
    with pytest.raises(ValueError, match=re.escape(line)):
        made(f"# P\n{line}\n", row("test_x", 5.0))


def test_a_run_that_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyError, match="gone"):
        made("# P\n{{machine gone}}\n")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.00203, "s", "2.03 ms"),
        (1.5e-5, "s", "15 µs"),
        (61.2, "s", "61.2 s"),
        (62, "MiB", "62 MiB"),
    ],
)
def test_quantities(value: float, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


@pytest.mark.parametrize(
    ("value", "text"), [(62914.0, "62,914"), (0.02377, "0.0238"), (2.0, "2"), (-1500.4, "-1,500")]
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


def test_names() -> None:
    assert label("test_one_event[16]") == "one event, 16"
    assert label("test_cold_look") == "cold look"


def test_plots_are_xml_of_their_numbers() -> None:
    one = {"min": 1e-3, "q1": 1e-3, "median": 1e-3, "q3": 1e-3, "max": 1e-3}
    many = {"min": 1e-3, "q1": 2e-3, "median": 3e-3, "q3": 4e-3, "max": 1.0}
    for svg in (
        boxes("a <b> & c", [("one", one), ("many", many)]),
        boxes("alone", [("one", one)]),
        curves("growth", "nodes", "s", {"up": [(10, 1.0), (100, 9.0)], "none": [(10, 0.0)]}),
    ):
        root = ElementTree.fromstring(svg)
        width = float(root.attrib["width"])
        for circle in root.iter("{http://www.w3.org/2000/svg}circle"):
            assert 0 <= float(circle.attrib["cx"]) <= width


def test_measurements_stand_across_by_what_names_their_column() -> None:
    cells = [
        row("test_local", 10.0, ratio=1.0, more={"rate": 9}),
        row("test_a", 10.0, ratio=1.5, more={"over": "plain", "delay": "1 ms", "rate": 8}),
        row("test_b", 10.0, ratio=2.0, more={"over": "plain", "delay": "5 ms", "rate": 4}),
        row("test_c", 10.0, ratio=3.0, more={"over": "sealed", "delay": "5 ms", "rate": 3}),
    ]
    page = made("# P\n{{across run g delay rate ratio}}", *cells)
    assert (
        "| | 1 ms | 5 ms |\n|---|---|---|\n| plain | 8, 1.5 x | 4, 2 x |\n| sealed |  | 3, 3 x |"
        in (page.text)
    )
