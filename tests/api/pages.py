# SPDX-License-Identifier: Apache-2.0
"""Pages of docs/ whose console blocks are run: reading them, and writing what was printed.

A ```console block holds commands after `$ ` and what they print. A comment before it says what
happens first, or that it cannot be run here and why:

    <!-- first: WHAT -->      a step of the stage (test_docs.py), several with `;` between
    <!-- not run: WHY -->     left alone
    <!-- file: NAME -->       before a yaml block: written as that file

With USBDRA_WRITE_DOCS set the pages are rewritten with what was printed, for a look at the diff.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!-- (first|not run|file): (.*?) -->\n+\Z")
_AGE = re.compile(r"\b(?:\d+[smhd])+\b(?=\s*$|\s{2,})", re.MULTILINE)
WRITE = bool(os.environ.get("USBDRA_WRITE_DOCS"))


@dataclass(frozen=True)
class Command:
    """One command and what the page says it prints."""

    words: str
    output: str


@dataclass(frozen=True)
class Block:
    """One block: its place in the text, what is before it, and what is in it."""

    kind: str
    start: int
    end: int
    body: str
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def commands(self) -> list[Command]:
        """The commands of a console block."""
        parts = re.split(r"^\$ ", self.body, flags=re.MULTILINE)
        assert not parts[0], f"output before a command: {parts[0]}"
        return [_command(part) for part in parts[1:]]


def blocks(text: str) -> Iterator[Block]:
    """Every fenced block of a page, in order."""
    for found in _FENCE.finditer(text):
        before, notes = text[: found.start()], {}
        while match := _COMMENT.search(before):
            notes[match[1]] = match[2]
            before = before[: match.start()]
        yield Block(found[1], found.start(), found.end(), found[2], notes)


def same(printed: str, documented: str) -> bool:
    """Equal but for ages."""
    return plain(printed) == plain(documented)


def plain(output: str) -> str:
    """The output with every age made one and nothing at the ends of lines."""
    lines = (_AGE.sub("AGE", line).rstrip() for line in output.strip().splitlines())
    return "\n".join(lines)


def rewritten(text: str, printed: dict[int, list[str]]) -> str:
    """The page with other outputs, by the start of their block."""
    for block in sorted(blocks(text), key=lambda block: -block.start):
        if block.start in printed:
            pairs = zip(block.commands, printed[block.start], strict=True)
            body = "".join(
                f"$ {command.words}\n{text.strip()}\n" if text.strip() else f"$ {command.words}\n"
                for command, text in pairs
            )
            text = f"{text[: block.start]}```console\n{body}```{text[block.end :]}"
    return text


def page(name: str) -> Path:
    """A page of docs/."""
    return Path(__file__).parents[2] / "docs" / name


def _command(part: str) -> Command:
    lines = part.splitlines()
    count = 1
    while lines[count - 1].endswith("\\"):
        count += 1
    return Command("\n".join(lines[:count]), "\n".join(lines[count:]))
