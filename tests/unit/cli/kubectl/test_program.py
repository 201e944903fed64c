# SPDX-License-Identifier: Apache-2.0
"""The plugin's commands and its documents name each other."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.cli.conftest import Cli
from usbdra.cli.kubectl.program import program

DOCS = Path(__file__).parents[4] / "docs"


def commands(document: str, heading: str) -> set[str]:
    """First words of the code in the first column of the table below a heading."""
    text = (DOCS / document).read_text().split(f"{heading}\n", 1)[1].split("\n## ", 1)[0]
    cells = re.findall(r"^\| ([^|]*) \|", text, re.MULTILINE)
    return {word for cell in cells for word in re.findall(r"`([a-z-]+)[ `]", cell)}


def test_every_command_is_in_the_table_of_commands_and_in_that_of_rights() -> None:
    names = set(program.commands)
    assert names <= commands("objects.md", "## kubectl usb")
    assert names == commands("security.md", "## Rights for kubectl usb")


def test_without_a_command_there_is_help(usb: Cli) -> None:
    result = usb()
    assert result.code == 0
    assert all(name in result.out for name in program.commands)
