# SPDX-License-Identifier: Apache-2.0
"""The network between the two nodes as netem makes it, and the programs that measure in them.

What each node sends waits half the time, so that a round trip takes `delay` more. Must not measure.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.kernel import links
from tests.bed.bed import Bed
from tests.bed.node import Node

INTERFACE = "eth0"
QUEUE = 20_000
"""Packets that may be under way: netem's own 1,000 would be a loss of its own."""
GUEST_FILES = (
    Path(__file__).with_name("guest_urbs.py"),
    Path(__file__).with_name("guest_keys.py"),
    Path(links.__file__).with_name("guest_copy.py"),
)
DELAYS_MS = (0.1, 1.0, 5.0, 20.0)
LOSSES = (0.0, 0.1, 1.0)
"""Percent of the packets, each way."""


def push(bed: Bed) -> None:
    """What runs in the nodes."""
    for node in (bed["a"], bed["b"]):
        for file in GUEST_FILES:
            node.push(file, f"/run/bed/{file.name}")


@contextmanager
def netem(bed: Bed, delay_ms: float, loss: float | None = None) -> Iterator[None]:
    """A round trip takes so much longer, and so many percent of the packets are lost each way.

    Where packets may be lost (also 0 percent, to compare with) each is one segment: netem would
    lose all 64 KiB that the kernel hands it at once for the card to cut.
    """
    words = f"limit {QUEUE} delay {delay_ms / 2:g}ms"
    if loss:
        words += f" loss {loss:g}%"
    try:
        for node in (bed["a"], bed["b"]):
            if loss is not None:
                node.run(f"ip link set dev {INTERFACE} gso_max_segs 1")
            node.run(f"tc qdisc replace dev {INTERFACE} root netem {words}")
        yield
    finally:
        for node in (bed["a"], bed["b"]):
            node.run(f"tc qdisc del dev {INTERFACE} root", check=False)
            node.run(f"ip link set dev {INTERFACE} gso_max_segs 65535")


@contextmanager
def gadget(bed: Bed, kind: str, serial: str, *words: Any, **more: Any) -> Iterator[dict[str, Any]]:
    """An emulated device in a while the block runs; what a's kernel says of it."""
    a = bed["a"]
    a.call(f"gadget.{kind}", serial, *words, **more)
    try:
        yield a.call("usb.wait", serial)
    finally:
        a.call("gadget.remove", serial)


def at(node: Node, serial: str, *, imported: bool) -> tuple[int, int, dict[str, int]]:
    """Bus and number of a source on a node, and its bulk endpoints, `in` and `out`."""
    device = node.call("usb.wait", serial, imported=imported)
    return device["busnum"], device["devnum"], node.call("guest_urbs.endpoints", device["busid"])
