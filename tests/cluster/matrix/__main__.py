# SPDX-License-Identifier: Apache-2.0
"""The fault matrix by hand.

    python -m tests.cluster.matrix run [--again] [--nightly] [--together] [WORDS...]
    python -m tests.cluster.matrix list [WORDS...]
    python -m tests.cluster.matrix page            docs/reliability.md, with the results of here

WORDS choose the cells whose name has all of them ("busy importer"). `run` takes the cluster that
was left running where USBDRA_CLUSTER=running (or its name), else one of its own; cells with a
result from an earlier run are left out unless --again says otherwise. With --together the phases of
a fault on one side are run at once, with a claim and a stick each: what long cuts are for.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Sequence

from tests.bed.progress import say
from tests.cluster import driver
from tests.cluster.bed import ClusterBed, adopted, wanted
from tests.cluster.matrix import page, results
from tests.cluster.matrix.run import Found, Stage, run, run_together
from tests.cluster.matrix.table import CELLS, NIGHTLY, Cell, Fault, Side


def chosen(words: Sequence[str], *, nightly: bool) -> list[Cell]:
    """The cells whose name has all words; the long ones only when asked for."""
    return [
        cell
        for cell in CELLS
        if all(word in str(cell) for word in words) and (nightly or cell.fault not in NIGHTLY)
    ]


def run_all(bed: ClusterBed, cells: Sequence[Cell]) -> int:
    """Run cells, one line for each; how many were not as they must be."""
    bad, stage = 0, contextlib.ExitStack()
    with stage:
        on: Stage | None = None
        for number, cell in enumerate(cells, 1):
            start = time.monotonic()
            on = on or stage.enter_context(Stage(bed))
            found = run(on, cell)
            show(found, f"[{number}/{len(cells)}]", time.monotonic() - start)
            if not found.ok:
                bad += 1
                stage.close()
                on = None
    return bad


def run_groups(bed: ClusterBed, cells: Sequence[Cell]) -> int:
    """The same, the phases of a fault and a side together."""
    groups: dict[tuple[Fault, Side], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.fault, cell.side), []).append(cell)
    bad = 0
    for number, group in enumerate(groups.values(), 1):
        start = time.monotonic()
        for found in run_together(bed, group):
            show(found, f"[{number}/{len(groups)}]", time.monotonic() - start)
            bad += not found.ok
    return bad


def show(found: Found, place: str, took: float) -> None:
    """Keep what came of a cell, and say it."""
    results.add(found.to_json())
    times = {**found.known, "link": found.link, "recovered": found.recovered}
    shown = " ".join(f"{key}={value}" for key, value in times.items() if value is not None)
    say(f"{place} {'ok' if found.ok else 'BAD'} {found.cell}: {shown} ({took:.0f} s)")
    if not found.ok:
        say(found.problem)


def write_page() -> int:
    """Put the results of this checkout's runs into the page and its data."""
    known = {**results.load(page.DATA), **results.load()}
    results.save(known, page.DATA)
    page.PAGE.write_text(page.filled(page.PAGE.read_text(), known))
    return 0


def main(argv: list[str]) -> int:
    """Returns how many cells went wrong, at most 1."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster.matrix",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=("run", "list", "page"))
    parser.add_argument("words", nargs="*")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--nightly", action="store_true")
    parser.add_argument("--together", action="store_true")
    options = parser.parse_intermixed_args(argv)
    cells = chosen(options.words, nightly=options.nightly)
    if options.command == "list":
        print(*cells, sep="\n")
        return 0
    if options.command == "page":
        return write_page()
    if not options.again:
        known = results.good()
        cells = [cell for cell in cells if str(cell) not in known]
    running = bool(wanted())
    with adopted() if running else ClusterBed(driver.spec()) as bed:
        if not driver.installed(bed):
            driver.install(bed)
        by_word = run_groups if options.together else run_all
        return min(by_word(bed, cells), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
