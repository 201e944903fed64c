# SPDX-License-Identifier: Apache-2.0
"""docs/metrics.md lists every metric as the code declares it.

`USBDRA_WRITE_DOCS=1` before pytest writes the tables anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from usbdra.metrics.families import COMMON, PARTS, REASONS, Family, Label

PAGE = Path(__file__).resolve().parents[3] / "docs/metrics.md"
TABLES = {"common": COMMON, **PARTS}


def table(families: Sequence[Family]) -> str:
    rows = [f"| `{f.name}` | {f.kind.value} | {labels(f)} | {f.help} |" for f in families]
    return "\n".join(["| metric | type | labels | what it says |", "|---|---|---|---|", *rows])


def labels(family: Family) -> str:
    return "; ".join(f"`{label.name}`: {values(label)}" for label in family.labels)


def values(label: Label) -> str:
    if not label.values:
        return label.bound
    if set(REASONS) <= set(label.values):
        return "`ok` or a reason"
    return ", ".join(label.values)


def block(part: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {part} -->\n)(.*?)(<!-- end -->)", re.DOTALL)


@pytest.mark.parametrize("part", TABLES)
def test_the_page_has_every_metric_of_the_part(part: str) -> None:
    own = [f for f in TABLES[part] if part == "common" or f not in COMMON]
    text, wanted = PAGE.read_text(), table(own) + "\n"
    found = block(part).search(text)
    assert found is not None
    if os.environ.get("USBDRA_WRITE_DOCS"):
        PAGE.write_text(block(part).sub(lambda m: m[1] + wanted + m[3], text))
    else:
        assert found[2] == wanted
