# SPDX-License-Identifier: Apache-2.0
"""One long-running program of the control plane: its command, its log, its start and stop."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.bed.errors import HostError
from tests.bed.process import end_recorded, spawn, stop

_TAIL_BYTES = 4096


class Component:
    """A program whose output goes to a log; nothing of it is read unless it fails.

    It ends with the thread that started it (see `tests.bed.process.spawn`), unless it is detached:
    then the file beside its log with the process id is how another process ends it.

    Args:
        command: its arguments name the folder of `log`, by which `stop` knows it again.
        keep_fds: descriptors that a detached one holds open.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        detached: bool = False,
        keep_fds: tuple[int, ...] = (),
    ) -> None:
        self.name = name
        self.log = log
        self.command = list(command)
        self._pidfile = log.with_suffix(".pid")
        self._detached, self._keep_fds = detached, keep_fds
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; a second start after `stop` appends to the same log."""
        if self._process is not None:
            raise HostError(f"{self.name} runs already")
        with self.log.open("ab") as log:
            self._process = spawn(
                self.command, stdout=log, detached=self._detached, keep_fds=self._keep_fds
            )
        self._pidfile.write_text(str(self._process.pid))

    @property
    def pid(self) -> int:
        """Of the program, as long as it runs."""
        return int(self._pidfile.read_text())

    def check(self) -> None:
        """Raise HostError when it has ended by itself, with the end of its log."""
        if self._process is not None and (code := self._process.poll()) is not None:
            raise HostError(f"{self.name} ended with status {code}:\n{self.tail()}")

    def stop(self) -> None:
        """End it, whoever started it; nothing happens when it is not running."""
        if self._process is not None:
            stop(self._process)
            self._process = None
        elif self._detached:
            end_recorded(self._pidfile, str(self.log.parent), signal.SIGTERM)

    def tail(self) -> str:
        """The last lines of the log."""
        if not self.log.exists():
            return ""
        return self.log.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace")
