# SPDX-License-Identifier: Apache-2.0
"""The rows as they are now, in the order of their last change. Pure.

Owns what a viewer has not seen yet: a change costs each viewer that one row, however many rows
there are. Must not know what a row means.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import Any

Row = Mapping[str, Any]
Name = tuple[str, str]
"""(section, key)."""
Changes = dict[str, dict[str, Row | None]]
"""By section and key; None for a row that went."""

MAX_GONE = 4096
"""Rows whose end is remembered. A viewer that is further behind begins anew."""


class Behind(Exception):
    """The viewer's place is before what is remembered."""


class Board:
    """See the module. Places are numbers that grow; 0 is before everything."""

    def __init__(self) -> None:
        self.place = 0
        self._rows: OrderedDict[Name, tuple[int, Row | None]] = OrderedDict()
        self._gone: OrderedDict[Name, None] = OrderedDict()
        self._floor = 0

    def put(self, section: str, key: str, row: Row | None) -> bool:
        """Take over a row, None for one that went. Whether anything is different now."""
        name = (section, key)
        _, before = self._rows.get(name, (0, None))
        if before == row:
            return False
        self.place += 1
        self._rows[name] = (self.place, row)
        self._rows.move_to_end(name)
        if row is not None:
            self._gone.pop(name, None)
            return True
        self._gone[name] = None
        if len(self._gone) > MAX_GONE:
            oldest, _ = self._gone.popitem(last=False)
            self._floor, _ = self._rows.pop(oldest)
        return True

    def since(self, place: int, sections: Collection[str]) -> tuple[int, Changes]:
        """The place of now, and all changes after `place`, the oldest first.

        Raises Behind when changes after `place` are forgotten. From 0 on there is nothing to miss,
        and rows that went before are no news.
        """
        if 0 < place < self._floor:
            raise Behind
        newer: list[tuple[Name, Row | None]] = []
        for name in reversed(self._rows):
            changed, row = self._rows[name]
            if changed <= place:
                break
            if name[0] in sections and (place or row is not None):
                newer.append((name, row))
        found: Changes = {}
        for (section, key), row in reversed(newer):
            found.setdefault(section, {})[key] = row
        return self.place, found
