# SPDX-License-Identifier: Apache-2.0
"""One cell of `make throughput`, short: transfers on a network whose round trip takes 5 ms more.

The yardstick is the same device read in its own node.
"""

from __future__ import annotations

import statistics

import pytest

from bench.conftest import Replay
from bench.kernel import links
from bench.throughput.grid import Source
from bench.throughput.network import at, gadget, netem, push
from tests.bed.bed import Bed

SERIAL = "SLOW"
SIZE = 64 << 10
DELAY_MS = 5.0
SECONDS = 0.4
DEPTHS = (1, 4)


@pytest.fixture(scope="module")
def taken(bed: Bed) -> dict[tuple[str, int], list[float]]:
    """Seconds a transfer, in its own node and over an encrypted link."""
    push(bed)
    a, b = bed["a"], bed["b"]
    found: dict[tuple[str, int], list[float]] = {}
    with gadget(bed, "source", SERIAL), links.served(bed):
        for where, node in (("own node", a), ("link", b)):
            if node is b:
                b.run(f"usbdra attach {a.ip} {SERIAL}", timeout=120)
            bus, device, ends = at(node, SERIAL, imported=node is b)
            source = Source(node, bus, device, ends["in"])
            with netem(bed, DELAY_MS):
                for depth in DEPTHS:
                    found[where, depth] = [source.read(SIZE, depth, SECONDS) for _ in range(3)]
        b.call("usb.detach_all", timeout=120)
        a.call("usb.wait_status", SERIAL, None)
    return found


@pytest.mark.parametrize("where", ["own node", "link"])
@pytest.mark.parametrize("depth", DEPTHS)
def test_transfers(
    replay: Replay, taken: dict[tuple[str, int], list[float]], depth: int, where: str
) -> None:
    seconds = taken[where, depth]
    role = "yardstick" if where == "own node" else "ours"
    facts = {"mib_per_s": round(SIZE / (1 << 20) / statistics.median(seconds), 2)}
    replay(f"64 KiB x {depth}, round trip + 5 ms", seconds, role=role, **facts)
