# SPDX-License-Identifier: Apache-2.0
"""Add up the JUnit files of one `make test` and print a line a suite and the total last.

A skip or an empty suite is a failure in CI: a test that did not run proves nothing.
"""

from __future__ import annotations

import os
import sys
import xml.etree.ElementTree as ET
from pathlib import Path


def counts(path: Path) -> tuple[int, int, int]:
    """(passed, failed, skipped) of one JUnit file."""
    passed = failed = skipped = 0
    for suite in ET.parse(path).getroot().iter("testsuite"):
        total = int(suite.get("tests", 0))
        bad = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skip = int(suite.get("skipped", 0))
        passed, failed, skipped = passed + total - bad - skip, failed + bad, skipped + skip
    return passed, failed, skipped


def main(folder: Path) -> int:
    """Print the table; 1 when something failed, was skipped in CI, or did not run at all."""
    files = sorted(folder.glob("*.xml"))
    rows = {path.stem: counts(path) for path in files}
    for name, (passed, failed, skipped) in rows.items():
        print(f"{name:10} {passed:5} passed {failed:4} failed {skipped:4} skipped")
    passed, failed, skipped = (sum(column) for column in zip(*rows.values(), strict=True))
    empty = [name for name, row in rows.items() if not sum(row)]
    if empty:
        print(f"no test ran in: {', '.join(empty)}")
    audit = folder / "audit.txt"  # what nobody could answer is no pass, and not of a test
    if audit.exists():
        print(audit.read_text(), end="")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return int(bool(failed or empty or not passed or (skipped and os.environ.get("CI"))))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
