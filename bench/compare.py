# SPDX-License-Identifier: Apache-2.0
"""Compare two JSON files of bench/run.py: how each ratio moved, and each cost of a size.

    python -m bench.compare BEFORE AFTER

Ratios carry over machines; so do requests, bytes and memory, and CPU seconds between like ones.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Key = tuple[str, str, str]
"""Group, benchmark and what of it: "ratio" or a cost's name."""


def load(path: Path) -> dict[Key, float]:
    """What of one run can be compared with another's."""
    return {key: value for row in json.loads(path.read_text())["rows"] for key, value in of(row)}


def of(row: dict[str, Any]) -> Iterator[tuple[Key, float]]:
    """One row's ratio, where it has one, and its costs that are held against a size."""
    place = row["group"], row["name"]
    if row["ratio"] is not None:
        yield (*place, "ratio"), float(row["ratio"])
    for cost in row.get("grows") or ():
        if cost in row["more"]:
            yield (*place, cost), float(row["more"][cost])


def lines(before: dict[Key, float], after: dict[Key, float]) -> Iterator[str]:
    """One for what both runs have; then what only one has."""
    for key in sorted(before.keys() & after.keys()):
        was, now = before[key], after[key]
        change = f" ({now / was - 1:+.0%})" if was else ""
        unit = " x" if key[2] == "ratio" else f" {key[2]}"
        yield f"{key[0]} / {key[1]}: {was:.4g} -> {now:.4g}{unit}{change}"
    for key in sorted(before.keys() ^ after.keys()):
        yield f"{' / '.join(key)}: only {'before' if key in before else 'after'}"


def main() -> int:
    """Print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    args = parser.parse_args()
    for line in lines(load(args.before), load(args.after)):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
