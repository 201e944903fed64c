# SPDX-License-Identifier: Apache-2.0
"""Copies over six links at once between the same two machines: one link works, the others rest.

Each link carries the same traffic, of a stick of its own that differs from the others in nothing
but its serial; that of pure Python is a disk of its memory. All are up from the first copy to the
last, and copies of a second or two go round them, each round beginning with another: what the
machine is busy with besides meets all alike.
Owns the links and the samples. Must not judge them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.kernel import links, peers, tunnels
from tests.bed.bed import Bed
from tests.kernel.conftest import tls_stat

PLAIN, ENCRYPTED, STOCK, STUNNEL, WIREGUARD, PYTHON = WAYS = (
    "plain",
    "encrypted",
    "stock",
    "stunnel",
    "wireguard",
    "python",
)
DIRECTIONS = ("read", "write")
BLOCKS = {"4 KiB": (4 << 10, 512 << 10), "1 MiB": (1 << 20, 4 << 20)}
"""Bytes of a block, and of one copy in such blocks."""
SIZE_MIB = 8

Place = tuple[str, str, str]
"""(way, direction, name of the block size)."""


@dataclass(frozen=True)
class Copy:
    """Seconds that one copy took, and that each node's processor worked meanwhile."""

    seconds: float
    exporter: float
    importer: float


@contextmanager
def linked(bed: Bed) -> Iterator[dict[str, str]]:
    """The name of each way's disk on b."""
    a, b = bed["a"], bed["b"]
    serials = {way: f"COPY-{way}" for way in WAYS}
    plain = f"--plain --port {links.PLAIN_PORT}"
    for node in (a, b):
        node.push(Path(__file__).with_name("guest_copy.py"), "/run/bed/guest_copy.py")
    with ExitStack() as stack:
        sticks = {way: serial for way, serial in serials.items() if way != PYTHON}
        for serial in sticks.values():
            a.call("gadget.storage", serial, SIZE_MIB)
            stack.callback(a.call, "gadget.remove", serial)
        busids = {way: a.call("usb.wait", s, child="disks")["busid"] for way, s in sticks.items()}
        stack.callback(a.call, "usb.release_all")
        for server in (links.served(bed), links.served(bed, plain), links.stock_served(bed)):
            stack.enter_context(server)
        stock = {
            STOCK: f"attach -r {a.ip}",
            STUNNEL: stack.enter_context(tunnels.stunnel(bed)),
            WIREGUARD: stack.enter_context(tunnels.wireguard(bed)),
        }
        stack.callback(b.call, "usb.detach_all", timeout=120)
        b.run(f"usbdra attach {a.ip} {serials[ENCRYPTED]}", timeout=120)
        b.run(f"usbdra attach {a.ip} {busids[PLAIN]} {plain}", timeout=120)
        for way, options in stock.items():
            a.run(f"usbip bind -b {busids[way]}")
            b.run(f"usbip {options} -b {busids[way]}")
        options = stack.enter_context(peers.python_disk(bed, serials[PYTHON], SIZE_MIB))
        b.run(f"usbip {options} -b {peers.PYTHON_BUSID}")
        yield {
            way: b.call("usb.wait", serial, imported=True, child="disks")["disks"][0]
            for way, serial in serials.items()
        }


def measure(bed: Bed, disks: Mapping[str, str], rounds: int) -> dict[Place, list[Copy]]:
    """So many copies of each kind on each link; one round before them is not kept."""
    places = [(way, to, block) for block in BLOCKS for to in DIRECTIONS for way in WAYS]
    found: dict[Place, list[Copy]] = {place: [] for place in places}
    carried = tunnels.through_wireguard(bed["b"])
    for number in range(rounds + 1):
        turn = number % len(WAYS)
        for block in BLOCKS:
            for to in reversed(DIRECTIONS):  # what is read was written before
                for way in WAYS[turn:] + WAYS[:turn]:
                    sample = _copy(bed, disks[way], to, block)
                    if number:
                        found[way, to, block].append(sample)
    _require_as_named(bed, tunnels.through_wireguard(bed["b"]) - carried, rounds + 1)
    return found


def _copy(bed: Bed, disk: str, to: str, block: str) -> Copy:
    before = _busy(bed)
    seconds = bed["b"].call("guest_copy.copy", disk, to, *BLOCKS[block], timeout=300)
    after = _busy(bed)
    return Copy(seconds, after[0] - before[0], after[1] - before[1])


def _busy(bed: Bed) -> tuple[float, float]:
    return bed["a"].call("guest_copy.busy"), bed["b"].call("guest_copy.busy")


def _require_as_named(bed: Bed, through_wireguard: int, rounds: int) -> None:
    """Each link was what its name says: the kernel's counters of TLS and WireGuard tell."""
    for node in (bed["a"], bed["b"]):
        stat = tls_stat(node)
        assert (stat["TlsCurrTxSw"], stat["TlsCurrRxSw"]) == (1, 1), f"{node.name}: {stat}"
    copied = rounds * len(DIRECTIONS) * sum(total for _, total in BLOCKS.values())
    # Headers are a quarter of a block of 4 KiB.
    assert copied <= through_wireguard < copied * 1.5, (copied, through_wireguard)


def rates(samples: Sequence[Copy], plain: Sequence[Copy], block: str) -> dict[str, Any]:
    """MiB/s and its part of the plain link's in the same round: medians, least and most; and CPU
    seconds of each node for a MiB, medians."""
    mib = BLOCKS[block][1] / (1 << 20)
    parts = [of.seconds / one.seconds for one, of in zip(samples, plain, strict=True)]
    return {
        "mib_per_s": _spread([mib / sample.seconds for sample in samples]),
        "part_of_plain": _spread(parts),
        "exporter_cpu_s_per_mib": round(statistics.median(s.exporter for s in samples) / mib, 3),
        "importer_cpu_s_per_mib": round(statistics.median(s.importer for s in samples) / mib, 3),
    }


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f}({min(values):.2f}-{max(values):.2f})"
