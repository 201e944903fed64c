# SPDX-License-Identifier: Apache-2.0
"""Bulk transfers over usbdra's links, plain and encrypted: sizes, delays, losses, and a disk.

A gadget that gives bytes without end is read by usbfs, in transfers of one size, some under way
at once; the same gadget is read in its own node too, which is what emulated device, kernel and
reader take without a link. A disk is read through usb-storage. All devices are there from the first
cell to the last, and cells of half a second go round the ways.
Owns links and samples. Must not judge them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from bench.kernel import links
from bench.throughput.network import DELAYS_MS, LOSSES, at, gadget, netem, trip
from tests.bed.bed import Bed
from tests.bed.node import Node

LOCAL, PLAIN, ENCRYPTED = WAYS = ("local", "plain", "encrypted")
LINKS = (PLAIN, ENCRYPTED)
SIZES = {"16 KiB": 16 << 10, "64 KiB": 64 << 10, "256 KiB": 256 << 10, "1 MiB": 1 << 20}
DEPTHS = (1, 4)
LOSSY_SIZE, LOSSY_DEPTH = "64 KiB", 4
"""The transfers that meet losses: what many drivers ask for."""
SECONDS, LOSSY_SECONDS = 0.4, 1.2
COMMANDS = {"120 KiB": 240, "1 MiB": 2048}
"""What usb-storage asks for at most, in sectors: its own choice for high speed, and raised."""
READ = 1 << 20
"""Bytes of the disk in one sample."""
DISK_MIB = 8


class Cell(NamedTuple):
    """One place of the grid; `delay` in milliseconds, `loss` in percent."""

    way: str
    size: str
    depth: int
    delay: float


class Lossy(NamedTuple):
    """Transfers of LOSSY_SIZE, LOSSY_DEPTH at once, on a network that loses packets."""

    way: str
    loss: float
    delay: float


class OfDisk(NamedTuple):
    """A disk read in commands of a size at most."""

    way: str
    command: str
    delay: float


class DiskRead(NamedTuple):
    """READ bytes of a disk: seconds, and the commands that they took."""

    seconds: float
    commands: int


@dataclass(frozen=True)
class Source:
    """A source where it is used."""

    node: Node
    bus: int
    device: int
    endpoint: int

    def read(self, size: int, depth: int, seconds: float) -> float:
        """Seconds that one transfer takes."""
        words = (self.bus, self.device, self.endpoint, size, depth, seconds)
        taken, _ = self.node.call("guest_urbs.bulk", *words, timeout=300)
        return float(taken)


@dataclass(frozen=True)
class Linked:
    """What all cells are measured on: a source by way, and a disk's name on b by link."""

    bed: Bed
    trip: float
    """Seconds of a packet there and back at the least delay."""
    sources: dict[str, Source]
    disks: dict[str, str]


@contextmanager
def linked(bed: Bed) -> Iterator[Linked]:
    """Three sources, of which one stays at home, and two disks."""
    a, b = bed["a"], bed["b"]
    plain = f"--plain --port {links.PLAIN_PORT}"
    with ExitStack() as stack:
        busids = {
            serial: stack.enter_context(gadget(bed, "source", serial))["busid"]
            for serial in (f"SOURCE-{way}" for way in WAYS)
        }
        for serial in (f"DISK-{way}" for way in LINKS):
            busids[serial] = stack.enter_context(gadget(bed, "storage", serial, DISK_MIB))["busid"]
        stack.callback(a.call, "usb.release_all")
        stack.enter_context(links.served(bed))
        stack.enter_context(links.served(bed, plain))
        stack.callback(b.call, "usb.detach_all", timeout=120)
        for kind in ("SOURCE", "DISK"):
            b.run(f"usbdra attach {a.ip} {kind}-{ENCRYPTED}", timeout=120)
            b.run(f"usbdra attach {a.ip} {busids[f'{kind}-{PLAIN}']} {plain}", timeout=120)
        sources = {LOCAL: _source(a, LOCAL)} | {way: _source(b, way) for way in LINKS}
        disks = {
            way: b.call("usb.wait", f"DISK-{way}", imported=True, child="disks")["disks"][0]
            for way in LINKS
        }
        with netem(bed, DELAYS_MS[0]):
            least = trip(bed)
        yield Linked(bed, least, sources, disks)


def _source(node: Node, way: str) -> Source:
    bus, device, ends = at(node, f"SOURCE-{way}", imported=way != LOCAL)
    return Source(node, bus, device, ends["in"])


def transfers(on: Linked, rounds: int) -> dict[Cell, list[float]]:
    """Seconds a transfer, by cell. The local source is read beside each delay, which it does not
    have."""
    found: dict[Cell, list[float]] = {}
    for _ in range(rounds):
        for delay in DELAYS_MS:
            with netem(on.bed, delay):
                for size, count in SIZES.items():
                    for depth in DEPTHS:
                        for way, source in on.sources.items():
                            taken = source.read(count, depth, SECONDS)
                            found.setdefault(Cell(way, size, depth, delay), []).append(taken)
    return found


def lossy(on: Linked, rounds: int) -> dict[Lossy, list[float]]:
    """Seconds a transfer, by cell."""
    found: dict[Lossy, list[float]] = {}
    for _ in range(rounds):
        for delay in DELAYS_MS:
            for loss in LOSSES:
                with netem(on.bed, delay, loss):
                    for way in LINKS:
                        source = on.sources[way]
                        taken = source.read(SIZES[LOSSY_SIZE], LOSSY_DEPTH, LOSSY_SECONDS)
                        found.setdefault(Lossy(way, loss, delay), []).append(taken)
    return found


def disk_reads(on: Linked, rounds: int) -> dict[OfDisk, list[DiskRead]]:
    """Past the page cache in one block, by cell."""
    found: dict[OfDisk, list[DiskRead]] = {}
    b = on.bed["b"]
    for command, sectors in COMMANDS.items():
        for disk in on.disks.values():
            b.write(f"/sys/block/{disk}/device/max_sectors", str(sectors))
            b.write(f"/sys/block/{disk}/queue/max_sectors_kb", str(sectors // 2))
        for _ in range(rounds):
            for delay in DELAYS_MS:
                with netem(on.bed, delay):
                    for way, disk in on.disks.items():
                        sample = _read(b, disk)
                        found.setdefault(OfDisk(way, command, delay), []).append(sample)
    return found


def _read(node: Node, disk: str) -> DiskRead:
    before = node.call("guest_copy.reads", disk)
    seconds = node.call("guest_copy.copy", disk, "read", READ, READ, timeout=300)
    return DiskRead(seconds, node.call("guest_copy.reads", disk) - before)
