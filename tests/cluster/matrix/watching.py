# SPDX-License-Identifier: Apache-2.0
"""When each node knew what: lines of guest_observer.py with this machine's time.

Owns the observers and the reading of what they said. All times are of one clock, this machine's;
a line is some 0.1 s old when it gets here, and the observer looks each 0.1 s.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bed.errors import BedError, CommandTimeout
from tests.bed.node import Node, Process

_SCRIPT = (Path(__file__).parent / "guest_observer.py").read_text()


class Said:
    """Lines of one node, each with its time, as they come."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lines: list[tuple[float, str]] = []
        self._news = threading.Condition()

    def add(self, at: float, lines: Iterable[str]) -> None:
        """Lines that came at a time."""
        with self._news:
            self._lines += [(at, line) for line in lines]
            self._news.notify_all()

    def wait(self, wanted: Callable[[str], bool], since: float, seconds: float) -> float:
        """When the first line after `since` that is wanted came. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        with self._news:
            while (found := self.first(wanted, since)) is None:
                if not self._news.wait(deadline - time.monotonic()):
                    said = [line for at, line in self._lines if at >= since]
                    raise TimeoutError(f"{self.name} did not say it in {seconds:g} s: {said}")
        return found

    def first(self, wanted: Callable[[str], bool], since: float) -> float | None:
        """The same, of what was said until now; None when nobody said it."""
        return next((at for at, line in list(self._lines) if at >= since and wanted(line)), None)

    def kernel(self) -> str:
        """The last line about ports and sessions."""
        return next(line for _, line in reversed(self._lines) if line.startswith("kernel"))

    def lines(self, since: float, zero: float) -> list[str]:
        """All that was said since then, each with its second from another time on."""
        return [f"{at - zero:+.1f} {line}" for at, line in list(self._lines) if at >= since]


@dataclass
class Moment:
    """When a fault came: a command made it, and what follows from it may be seen before the
    command has returned.

    Attributes:
        before: nothing of it was there yet.
        begun: it was there. All durations are from here on.
    """

    before: float
    begun: float

    def until(self, said: Said, wanted: Callable[[str], bool], seconds: float) -> float:
        """Seconds until a node said it, 0.0 before `begun`. Raises TimeoutError."""
        at = said.wait(wanted, self.before, seconds)
        return round(max(at - self.begun, 0.0), 1)


class Observer(Said):
    """What one node says. It ends with its node's power, and says nothing afterwards."""

    def __init__(self, node: Node) -> None:
        super().__init__(node.name)
        self._process = node.start(["python3", "-S", "-c", _SCRIPT])
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, args=(self._process,), daemon=True)
        self._thread.start()
        self.wait(lambda line: line.startswith("kernel"), 0.0, 30.0)

    def stop(self) -> None:
        """End the observer, if its node is still there."""
        self._ended.set()
        with contextlib.suppress(BedError, TimeoutError, OSError):  # it ended with its node
            self._process.signal()
        self._thread.join(10)

    def _follow(self, process: Process) -> None:
        seen = 0
        try:
            while process.rc is None and not self._ended.is_set():
                try:
                    process.wait_for(rf"(?s)^.{{{seen}}}.*\n", 1.0)
                except CommandTimeout:
                    continue
                whole = process.out[seen : process.out.rindex("\n") + 1]
                seen += len(whole)
                self.add(time.monotonic(), whole.splitlines())
        except BedError:  # the node's power went, or the observer was ended
            return


@contextmanager
def observed(*nodes: Node) -> Iterator[dict[str, Observer]]:
    """Observers of these nodes, by name."""
    made: dict[str, Observer] = {}
    try:
        for node in nodes:
            made[node.name] = Observer(node)
        yield made
    finally:
        for one in made.values():
            one.stop()
