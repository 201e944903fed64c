# SPDX-License-Identifier: Apache-2.0
"""Reading the whole stick past the page cache: plain against encrypted on the same pair.

The yardstick is our plain link, the stock link shows that it is the kernel's own speed.
"""

from __future__ import annotations

import statistics

import pytest

from bench.conftest import Replay
from bench.kernel.links import MIB


@pytest.mark.parametrize("link", ["plain", "encrypted", "stock"])
def test_read(replay: Replay, read: dict[str, list[float]], link: str) -> None:
    speed = round(MIB / statistics.median(read[link]), 1)
    role = "yardstick" if link == "plain" else "ours"
    replay(f"reading {MIB} MiB of an imported stick", read[link], role=role, mib_per_s=speed)
