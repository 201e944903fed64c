# SPDX-License-Identifier: Apache-2.0
"""Results of cells on disk: build/results/faults.json, by the cell's name; the last run counts.

Owns the file. Must not know a bed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path("build/results/faults.json")


def load(path: Path = FILE) -> dict[str, dict[str, Any]]:
    """Every result by its cell's name; nothing where nothing was run."""
    if not path.exists():
        return {}
    found: dict[str, dict[str, Any]] = json.loads(path.read_text())
    return found


def add(found: dict[str, Any], path: Path = FILE) -> None:
    """Put one result in, whole or not at all."""
    save({**load(path), found["cell"]: found}, path)


def save(known: dict[str, dict[str, Any]], path: Path) -> None:
    """Write all results, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    new.replace(path)


def good(path: Path = FILE) -> set[str]:
    """Names of the cells that were as they must be."""
    return {name for name, found in load(path).items() if found["ok"]}
