# SPDX-License-Identifier: Apache-2.0
"""How far property and model tests look.

By default they look at the same examples in every run, so that what fails, fails for a change. With
SEARCH=N in the environment (`make search`) they look at others each time, N times as many. What is
found that way becomes a test of its own.
"""

from __future__ import annotations

import os
from datetime import timedelta

from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("SEARCH", "0"))


def examples(number: int) -> int:
    """For `max_examples`: as many as are looked at by default."""
    return number * max(TIMES, 1)


def load() -> None:
    """For conftest.py."""
    settings.register_profile(
        "usbdra",
        derandomize=not TIMES,
        database=None,
        max_examples=examples(100),
        deadline=timedelta(seconds=5),  # of one example, on a busy machine too
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("usbdra")
