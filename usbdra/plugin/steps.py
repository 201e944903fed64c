# SPDX-License-Identifier: Apache-2.0
"""How long each step of a claim took: for one line in the log when it is over.

Owns the clock readings of the claims that are being worked on, and nothing of the steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

from usbdra.plugin.acts import Step, StepHook
from usbdra.types import ClaimUid


class StepTimes:
    """A step hook that calls `then`, and knows the times between steps."""

    def __init__(self, then: StepHook, clock: Callable[[], float] = time.monotonic) -> None:
        self._then = then
        self._clock = clock
        self._marks: dict[ClaimUid, list[tuple[str, float]]] = {}

    def __call__(self, step: Step, uid: ClaimUid) -> None:
        """A step of the claim is over."""
        marks = self._marks.get(uid)
        if marks is not None:
            marks.append((step.value.partition(".")[2], self._clock()))
        self._then(step, uid)

    def begin(self, uid: ClaimUid) -> None:
        """Work on the claim begins; what was known of it is forgotten."""
        self._marks[uid] = [("", self._clock())]

    def end(self, uid: ClaimUid) -> dict[str, float]:
        """Milliseconds up to each step from the one before it, `total` among them; {} when the
        work never began. A step that comes several times, once a device, is summed up."""
        marks = self._marks.pop(uid, None)
        if marks is None:
            return {}
        found: dict[str, float] = {}
        for (_, before), (name, at) in pairwise(marks):
            found[name] = found.get(name, 0.0) + (at - before) * 1e3
        found["total"] = (self._clock() - marks[0][1]) * 1e3
        return {name: round(milliseconds, 1) for name, milliseconds in found.items()}
