# SPDX-License-Identifier: Apache-2.0
"""The network between the two nodes as netem makes it, and the programs that measure in them.

What each node sends waits half the time, so that a round trip takes `delay` more. Must not measure.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.kernel import links
from tests.bed.bed import Bed
from tests.bed.node import Node

QUEUE = 20_000
"""Packets that may be under way: netem's own 1,000 would be a loss of its own."""
GUEST_FILES = (
    Path(__file__).with_name("guest_urbs.py"),
    Path(__file__).with_name("guest_keys.py"),
    Path(links.__file__).with_name("guest_copy.py"),
)
SEGMENTS = 65535
"""That the kernel hands to the card at once, as it is by itself (GSO_MAX_SEGS)."""
PINGS = 20
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
    nodes = [(node, _interface(node)) for node in (bed["a"], bed["b"])]
    try:
        for node, interface in nodes:
            if loss is not None:
                node.run(_segments(interface, 1))
            node.run(f"tc qdisc replace dev {interface} root netem {words}")
        yield
    finally:
        for node, interface in nodes:
            node.run(f"tc qdisc del dev {interface} root", check=False)
            if loss is not None:
                node.run(_segments(interface, SEGMENTS))


def _segments(interface: str, count: int) -> str:
    """A running connection hears of it when its route is looked up anew (sk_setup_caps)."""
    return f"ip link set dev {interface} gso_max_segs {count} && ip route flush cache"


def trip(bed: Bed) -> float:
    """Seconds of a packet from b to a and back, as the network is now: the median of some."""
    said = bed["b"].sh(f"ping -c {PINGS} -i 0.05 {bed['a'].ip}")
    return statistics.median(float(ms) for ms in re.findall(r"time=([\d.]+) ms", said)) / 1e3


def _interface(node: Node) -> str:
    return node.sh(f"ip -oneline address show to {node.ip}").split()[1]


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
