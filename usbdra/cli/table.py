# SPDX-License-Identifier: Apache-2.0
"""Text tables in the manner of kubectl: upper-case headers, columns parted by three spaces.

Owns column widths and what a terminal is allowed to see. A table library costs more start-up
time than all of `usbdra list`; this is what it would be used for.
"""

from __future__ import annotations

from collections.abc import Iterable

GAP = "   "


def render(headers: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """The table as text that ends with a line feed; short rows are filled up with nothing."""
    return Growing(headers).add(rows)


class Growing:
    """A table whose rows come one by one; a column only ever gets wider."""

    def __init__(self, headers: Iterable[str]) -> None:
        self._first: list[list[str]] = [list(headers)]
        self._widths: list[int] = []

    def add(self, rows: Iterable[Iterable[str]]) -> str:
        """The text of these rows, the first time with the headers above."""
        lines = [[printable(cell) for cell in row] for row in [*self._first, *rows]]
        self._first = []
        self._widths += [0] * (max(map(len, lines), default=0) - len(self._widths))
        for line in lines:
            for column, cell in enumerate(line):
                self._widths[column] = max(self._widths[column], width(cell))
        return "".join(_padded(line, self._widths) + "\n" for line in lines)


def printable(text: str) -> str:
    """The text with everything escaped that is no letter, mark, sign or plain space.

    Texts of devices and peers are shown on a terminal, which obeys control characters.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def width(text: str) -> int:
    """How many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in ("W", "F") else 1 for c in text)


def _padded(line: list[str], widths: list[int]) -> str:
    cells = (cell + " " * (widths[n] - width(cell)) for n, cell in enumerate(line))
    return GAP.join(cells).rstrip()


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode()
