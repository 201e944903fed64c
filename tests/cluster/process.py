# SPDX-License-Identifier: Apache-2.0
"""One long-running program of the control plane: its command, its log, its start and stop."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.bed.errors import HostError
from tests.bed.process import spawn, stop

_TAIL_BYTES = 4096


class Component:
    """A program whose output goes to a log; nothing of it is read unless it fails.

    It ends with the thread that started it (see `tests.bed.process.spawn`).
    """

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; a second start after `stop` appends to the same log."""
        if self._process is not None:
            raise HostError(f"{self.name} runs already")
        with self.log.open("ab") as log:
            self._process = spawn(self._command, stdout=log)

    def check(self) -> None:
        """Raise HostError when it has ended by itself, with the end of its log."""
        if self._process is not None and (code := self._process.poll()) is not None:
            raise HostError(f"{self.name} ended with status {code}:\n{self.tail()}")

    def stop(self) -> None:
        """End it; nothing happens when it is not running."""
        if self._process is not None:
            stop(self._process)
            self._process = None

    def tail(self) -> str:
        """The last lines of the log."""
        if not self.log.exists():
            return ""
        return self.log.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace")
