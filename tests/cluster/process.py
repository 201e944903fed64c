# SPDX-License-Identifier: Apache-2.0
"""One long-running program of the bed: started with a log file, ended by its process id."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

_TAIL_BYTES = 4096


class Component:
    """A child process whose output goes to a log; nothing of it is read unless it fails."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id, while it was started and not stopped."""
        if self._process is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._process.pid

    def start(self) -> None:
        """Start it; a second start after `stop` appends to the same log."""
        if self._process is not None:
            raise RuntimeError(f"{self.name} runs already")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def check(self) -> None:
        """Raise when the process has ended by itself, with the end of its log."""
        if self._process is not None and (code := self._process.poll()) is not None:
            raise RuntimeError(f"{self.name} ended with status {code}:\n{self.tail()}")

    def stop(self, grace: float = 10.0) -> None:
        """Ask it to end, kill it after `grace` seconds; nothing happens when it is not running."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def tail(self) -> str:
        """The last lines of the log."""
        if not self.log.exists():
            return ""
        return self.log.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace")
