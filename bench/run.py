# SPDX-License-Identifier: Apache-2.0
"""Run the benchmarks and print each as a ratio against the yardstick of its group.

    python -m bench.run [--output FILE] [PATH...]

A benchmark names its place with `benchmark.group` and, in `benchmark.extra_info`, its `role`:
`yardstick` for the one the others of the group are divided by. `goal` (a ratio) and `wants`
(`at most` or `at least`, the latter for speed-ups of the yardstick over ours) are optional. What
else is in `extra_info` is a measurement of its own and is shown as it is; `goal_X` is the most that
the measurement `X` beside it may be. `size` and `grows` are for costs that grow: bench/growth.py.
Machines are noisy, so a missed goal is shown and is not an error.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import growth

HERE = Path(__file__).parent
PLACE = ("role", "goal", "wants", "size", "grows")


def machine() -> dict[str, Any]:
    """What a reader needs to judge absolute times."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cpu": model,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def ratios(benchmarks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows {group, name, median_us, ratio, goal, wants, met, more}; no yardstick, no ratio.

    With wants `at least` the ratio is yardstick / ours (how many times faster), else
    ours / yardstick (what it costs).
    """
    yardsticks = {
        b["group"]: b["stats"]["median"]
        for b in benchmarks
        if b["extra_info"].get("role") == "yardstick"
    }
    rows = []
    for bench in benchmarks:
        info, median = bench["extra_info"], bench["stats"]["median"]
        base = yardsticks.get(bench["group"])
        wants = info.get("wants", "at most")
        ratio = None if base is None else (base / median if wants == "at least" else median / base)
        goal = info.get("goal")
        met = None
        if ratio is not None and goal is not None:
            met = ratio >= goal if wants == "at least" else ratio <= goal
        limits = within_limits(info)
        if limits is not None:
            met = limits and met is not False
        rows.append(
            {
                "group": bench["group"] or "",
                "name": bench["name"],
                "median_us": median * 1e6,
                "spread_us": spread_of(bench["stats"]),
                "ratio": ratio,
                "goal": goal,
                "wants": wants,
                "met": met,
                "size": info.get("size"),
                "grows": info.get("grows", {}),
                "more": {key: value for key, value in info.items() if key not in PLACE},
            }
        )
    return rows


def spread_of(stats: dict[str, Any]) -> dict[str, float]:
    """Rounds and their quarters in µs, for plots; the median alone where more is not known."""
    median = stats["median"]
    names = ("min", "q1", "median", "q3", "max")
    found = {name: stats.get(name, median) * 1e6 for name in names}
    return {**found, "rounds": stats.get("rounds", 1)}


def within_limits(info: dict[str, Any]) -> bool | None:
    """Whether each X is at most its `goal_X`; None when there is no such pair."""
    goals = {key.removeprefix("goal_"): info[key] for key in info if key.startswith("goal_")}
    met = [info[name] <= most for name, most in goals.items() if name in info]
    return all(met) if met else None


def show(rows: list[dict[str, Any]]) -> None:
    """Print the rows as a table, one group after the other."""
    width = max((len(r["name"]) for r in rows), default=10)
    group = None
    for row in sorted(rows, key=lambda r: r["group"]):
        if row["group"] != group:
            group = row["group"]
            print(f"\n{group}")
        ratio = "" if row["ratio"] is None else f"{row['ratio']:8.2f} x"
        goal = "" if row["goal"] is None else f"goal {row['wants']} {row['goal']:g} x"
        met = {None: "", True: "met", False: "MISSED"}[row["met"]]
        more = " ".join(f"{key}={value}" for key, value in row["more"].items())
        line = f"  {row['name']:{width}} {row['median_us']:12.1f} us {ratio:>10}"
        print(f"{line} {goal:22} {met:6} {more}".rstrip())


def main() -> int:
    """Entry point; the exit status is pytest's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="write JSON: machine facts and rows")
    parser.add_argument("paths", nargs="*", default=[str(HERE / "micro")])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "raw.json"
        command = [
            sys.executable, "-m", "pytest", *args.paths, "-q", "--no-header",
            "--benchmark-enable", "--benchmark-only", "--benchmark-quiet",
            "--benchmark-disable-gc", f"--benchmark-json={raw}", "--timeout=600",
        ]  # fmt: skip
        if args.output:
            args.output.parent.mkdir(parents=True, exist_ok=True)
            command += [
                f"--junitxml={args.output.with_suffix('.xml')}",
                "-o",
                "junit_family=xunit2",
            ]
        status = subprocess.run(command, check=False).returncode
        # What ran is shown also where something failed; the status says that.
        if not raw.exists() or not raw.stat().st_size:
            return status or 1
        rows = ratios(json.loads(raw.read_text())["benchmarks"])
    show(rows)
    grown = growth.grown(rows)
    if grown:
        print("\nhow costs grow")
        growth.show(grown)
    if args.output:
        found = {"machine": machine(), "rows": rows, "growth": grown}
        args.output.write_text(json.dumps(found, indent=1) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
