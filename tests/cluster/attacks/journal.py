# SPDX-License-Identifier: Apache-2.0
"""What a container of the driver on a node has logged, and the audit log among it.

Owns the reading, in the node itself, of what the container runtime wrote; a line gets there a
moment after it was logged, which `wait` allows for. Must not judge what it says.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from tests.bed.node import Node
from tests.cluster.driver import NAMESPACE

_SECONDS = 20.0
_LOOK_SECONDS = 0.3

Line = dict[str, Any]


class Journal:
    """Lines of the containers of this name (agent, exporter) on a node, from `mark` on."""

    def __init__(self, node: Node, container: str) -> None:
        self._node = node
        self._files = f"/var/log/pods/{NAMESPACE}_usbdra-*/{container}/*.log"
        self.mark()

    def mark(self) -> None:
        """Leave out what was logged until now, by the node's clock."""
        self._since = self._node.sh("date -u +%Y-%m-%dT%H:%M:%S.%3NZ")

    def lines(self) -> list[Line]:
        """What is there now, in the order of its time."""
        texts = self._node.sh(f"cat {self._files} 2>/dev/null; true").splitlines()
        found = [
            json.loads(text) for text in (t.split(" ", 3)[3] for t in texts) if text[:1] == "{"
        ]
        return sorted((one for one in found if one["time"] >= self._since), key=_time)

    def decisions(self, count: int) -> list[Line]:
        """Lines of the audit log, once there are so many. Raises AssertionError as `wait`."""
        deadline = time.monotonic() + _SECONDS
        while True:
            found = [one for one in self.lines() if one["logger"] == "audit"]
            if len(found) >= count:
                return found
            assert time.monotonic() < deadline, f"{len(found)} decisions, not {count}: {found}"
            time.sleep(_LOOK_SECONDS)

    def wait(self, fits: Callable[[Line], bool], what: str) -> Line:
        """The first line that fits; nothing announces one, so it is looked for.

        Raises:
            AssertionError: with all lines since the mark.
        """
        deadline = time.monotonic() + _SECONDS
        while True:
            lines = self.lines()
            for one in lines:
                if fits(one):
                    return one
            assert time.monotonic() < deadline, f"{what}: not among {lines}"
            time.sleep(_LOOK_SECONDS)

    def said(self, text: str) -> Line:
        """The first line whose message holds this. Raises as `wait`."""
        return self.wait(lambda line: text in line["message"], text)


def _time(line: Line) -> str:
    return str(line["time"])
