# SPDX-License-Identifier: Apache-2.0
"""Compare two JSON files of bench/run.py: how each ratio moved. Ratios carry over machines."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path


def load(path: Path) -> dict[tuple[str, str], float]:
    """{(group, name): ratio} of one run."""
    rows = json.loads(path.read_text())["rows"]
    return {(r["group"], r["name"]): r["ratio"] for r in rows if r["ratio"] is not None}


def main() -> int:
    """Print one line a benchmark that both runs have, and name those that only one has."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    args = parser.parse_args()
    before, after = load(args.before), load(args.after)
    for key in sorted(before.keys() & after.keys()):
        change = after[key] / before[key] - 1
        print(f"{key[0]} / {key[1]}: {before[key]:.2f} x -> {after[key]:.2f} x ({change:+.0%})")
    for key in sorted(before.keys() ^ after.keys()):
        where = "before" if key in before else "after"
        print(f"{key[0]} / {key[1]}: only {where}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
