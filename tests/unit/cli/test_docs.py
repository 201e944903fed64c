# SPDX-License-Identifier: Apache-2.0
"""docs/cli.md says what the program does."""

from __future__ import annotations

import re
from pathlib import Path

from usbdra import errors
from usbdra.cli.group import COMMANDS
from usbdra.config import ENV_PREFIX, settings_keys

DOCS = Path(__file__).parents[3] / "docs"
CLI = (DOCS / "cli.md").read_text()
OPERATIONS = (DOCS / "operations.md").read_text()


def family(kind: type[errors.UsbdraError]) -> set[type[errors.UsbdraError]]:
    return {kind}.union(
        *(family(one) for one in kind.__subclasses__() if one.__module__ == errors.__name__)
    )


def test_every_reason_stands_in_the_row_of_its_exit_code() -> None:
    rows = dict(re.findall(r"^\| (\d+) \| ([^|]*) \|", CLI, re.MULTILINE))
    for kind in family(errors.UsbdraError):
        listed = rows[str(kind.exit_code)].split(", ")
        assert kind.reason in listed or rows[str(kind.exit_code)].startswith("Failed"), kind


def test_operations_has_an_answer_for_every_reason_a_person_meets() -> None:
    for kind in family(errors.UsbdraError):
        if kind.exit_code not in (1, 2, 3):
            words = re.findall(r"^\| ([A-Z][A-Za-z, ]+) \|", OPERATIONS, re.MULTILINE)
            assert kind.reason in {w for line in words for w in line.split(", ")}, kind.reason


def test_every_command_and_setting_is_documented() -> None:
    assert [name for name in COMMANDS if f"`{name}" not in CLI] == []
    for key, name in settings_keys().items():
        assert re.search(rf"^\| .*\b{key}\b", CLI, re.MULTILINE), key
        assert key == "policy" or f"{ENV_PREFIX}{name.upper()}" in CLI
