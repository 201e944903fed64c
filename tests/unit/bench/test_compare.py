# SPDX-License-Identifier: Apache-2.0
"""How two runs differ, in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.compare import lines, load


def run(path: Path, *rows: dict[str, Any]) -> Path:
    plain: dict[str, Any] = {"group": "g", "ratio": None, "grows": {}, "more": {}}
    path.write_text(json.dumps({"rows": [{**plain, **row} for row in rows]}))
    return path


def test_ratios_and_costs_that_moved(tmp_path: Path) -> None:
    costs = {"writes": 1}
    before = run(
        tmp_path / "before",
        {"name": "ours", "ratio": 1.25},
        {"name": "scale[10]", "grows": costs, "more": {"writes": 10, "seconds": 3}},
        {"name": "gone", "ratio": 2.0},
    )
    after = run(
        tmp_path / "after",
        {"name": "ours", "ratio": 1.0},
        {"name": "scale[10]", "grows": costs, "more": {"writes": 15}},
        {"name": "no ratio"},
    )
    assert list(lines(load(before), load(after))) == [
        "g / ours: 1.25 -> 1 x (-20%)",
        "g / scale[10]: 10 -> 15 writes (+50%)",
        "g / gone / ratio: only before",
    ]


def test_from_nothing_there_is_no_part(tmp_path: Path) -> None:
    costs = {"grows": {"bytes": 0}}
    before = run(tmp_path / "before", {"name": "a", **costs, "more": {"bytes": 0}})
    after = run(tmp_path / "after", {"name": "a", **costs, "more": {"bytes": 7}})
    assert list(lines(load(before), load(after))) == ["g / a: 0 -> 7 bytes"]
