# SPDX-License-Identifier: Apache-2.0
"""What holds after every test: no descriptor and no thread more than before."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator

import pytest

from tests import searching

# A process that has used gRPC makes its wake-up descriptors anew, under other numbers, at each
# fork: that would look like a leak of every later test that starts a program.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"

searching.load()


def open_descriptors() -> dict[int, str]:
    """Every open descriptor of this process and what it points to."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
    return found


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves descriptors or threads behind (session-wide beds are exempt)."""
    if any(request.node.get_closest_marker(bed) for bed in ("kernel", "cluster", "api")):
        yield
        return
    before, threads = open_descriptors(), set(threading.enumerate())
    yield
    left = {fd: to for fd, to in open_descriptors().items() if fd not in before}
    if left:
        gc.collect()  # sockets in reference cycles of a failed connection are Python's to close
        left = {fd: to for fd, to in open_descriptors().items() if fd not in before}
    # One test may be the first to make a session-wide loop or random source: those are no leaks.
    left = {fd: to for fd, to in left.items() if to not in ("/dev/urandom",)}
    assert not left, f"descriptors left open: {left}"
    extra = [t for t in threading.enumerate() if t not in threads and not t.daemon]
    assert not extra, f"threads left running: {extra}"
