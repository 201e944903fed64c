# SPDX-License-Identifier: Apache-2.0
"""A limit on how often something may happen. Pure: time is an argument."""

from __future__ import annotations


class Bucket:
    """Lets `burst` through at once and `per_second` from then on."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._left = float(burst)
        self._at = 0.0

    def take(self, now: float) -> bool:
        """Whether one more may pass at `now`, in seconds of any clock that does not go back."""
        self._left = min(self._burst, self._left + max(0.0, now - self._at) * self._per_second)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
