# SPDX-License-Identifier: Apache-2.0
"""One fault for several scenes at once: it begins when each claim is in its phase.

Owns how threads meet. What a fault takes ten minutes for, it takes once, not four times.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

MEET_S = 600.0
"""The slowest of the scenes has started its pod by then."""


class Together:
    """What so many scenes share. Raises BrokenBarrierError where one of them failed."""

    def __init__(self, scenes: int) -> None:
        self._ready = threading.Barrier(scenes, timeout=MEET_S)
        self._met = threading.Barrier(scenes, timeout=MEET_S)
        self._over = threading.Barrier(scenes, timeout=2 * MEET_S)

    def ready(self) -> None:
        """A scene has what it needs before its phase: nobody is in one before all have, and those
        whose phase passes by itself begin it then."""
        self._ready.wait()

    @contextlib.contextmanager
    def fault(self, act: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
        """Inside the fault is on; at the end its cause is gone for all."""
        first = self._met.wait() == 0
        with act() if first else contextlib.nullcontext():
            yield
        self._over.wait()

    def give_up(self) -> None:
        """A scene failed: nobody waits for it."""
        for barrier in (self._ready, self._met, self._over):
            barrier.abort()
