# SPDX-License-Identifier: Apache-2.0
"""Progress lines for people: what is being done, and how long it took.

Owns the wording and timing of messages on stderr. Must not do any of the work.
"""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()


def say(text: str) -> None:
    """Print one line on stderr, unless USBDRA_QUIET is set."""
    if os.environ.get("USBDRA_QUIET"):
        return
    with _lock:
        print(f"[bed] {text}", file=sys.stderr, flush=True)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Announce a step, then say how long it took or that it failed."""
    say(f"{text} ...")
    start = time.monotonic()
    try:
        yield
    except BaseException:
        say(f"{text}: FAILED after {time.monotonic() - start:.1f} s")
        raise
    say(f"{text}: {time.monotonic() - start:.1f} s")
