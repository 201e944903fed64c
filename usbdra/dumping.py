# SPDX-License-Identifier: Apache-2.0
"""What a running part tells of itself when asked by a signal: its state, and more of its log.

SIGUSR2 is one log line `state` with all that the part says, whatever the level. SIGUSR1 turns
debug lines on, and off again. Both work from `kubectl exec`. Owns the signals; what is told is
each part's own. Must not change anything but the level.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from usbdra import log

logger = logging.getLogger(__name__)

MAX_ITEMS = 1000
"""Claims, sessions or keys that one dump lists of a kind; the rest is a number."""

Tell = Callable[[], Mapping[str, object]]


class StateDump:
    """The state of one process: `add` what tells a piece of it."""

    def __init__(self) -> None:
        self._tells: dict[str, Tell] = {}

    def add(self, name: str, tell: Tell) -> None:
        """Ask `tell`, too; a later one of the same name takes its place."""
        self._tells[name] = tell

    def read(self) -> dict[str, object]:
        """All of it, now. A piece that cannot be read is told as its error."""
        found: dict[str, object] = {}
        for name, tell in self._tells.items():
            try:
                found[name] = dict(tell())
            except Exception as error:  # what is broken is what is looked for
                found[name] = {"error": f"{type(error).__name__}: {error}"}
        return found

    def tell(self) -> None:
        """The state as one line of the log."""
        log.always("state", {"state": self.read()})


def some(items: Mapping[str, object]) -> dict[str, object]:
    """At most MAX_ITEMS of them, and how many more there are."""
    found = dict(list(items.items())[:MAX_ITEMS])
    return found if len(found) == len(items) else {**found, "more": len(items) - len(found)}


@contextmanager
def answering(dump: StateDump) -> Iterator[None]:
    """Answer both signals while inside. Needs a running loop."""
    loop = asyncio.get_running_loop()
    acts = {signal.SIGUSR1: log.toggle_debug, signal.SIGUSR2: dump.tell}
    for number, act in acts.items():
        loop.add_signal_handler(number, act)
    try:
        yield
    finally:
        for number in acts:
            loop.remove_signal_handler(number)
            # The default would be the end of a process that is about to stop in order.
            signal.signal(number, signal.SIG_IGN)
