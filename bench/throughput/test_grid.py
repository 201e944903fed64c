# SPDX-License-Identifier: Apache-2.0
"""What limits a link: transfers of several sizes and numbers at once, over delays and losses.

The yardstick of each group is the same device read in its own node. A cell's `limit` is what
model.py says takes the time, of the link's own times in the same run, and `of_limit` is what was
measured of that.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from bench.conftest import Replay
from bench.throughput import grid
from bench.throughput.grid import (
    COMMANDS,
    DEPTHS,
    ENCRYPTED,
    LINKS,
    LOCAL,
    LOSSY_DEPTH,
    LOSSY_SIZE,
    PLAIN,
    SIZES,
    Cell,
    DiskRead,
    Linked,
    Lossy,
    OfDisk,
)
from bench.throughput.model import Limit, Link
from bench.throughput.network import DELAYS_MS, LOSSES
from tests.bed.bed import Bed

MIB = 1 << 20
CARRYING = {PLAIN: "copies", ENCRYPTED: "copies, crypto"}


@pytest.fixture(scope="module")
def linked(bed: Bed) -> Iterator[Linked]:
    """Links and devices of this module."""
    with grid.linked(bed) as found:
        yield found


@pytest.fixture(scope="module")
def cells(linked: Linked, rounds: int) -> dict[Cell, list[float]]:
    return grid.transfers(linked, rounds)


@pytest.fixture(scope="module")
def lossy(linked: Linked, rounds: int) -> dict[Lossy, list[float]]:
    return grid.lossy(linked, rounds)


@pytest.fixture(scope="module")
def disks(linked: Linked, rounds: int) -> dict[OfDisk, list[DiskRead]]:
    return grid.disk_reads(linked, rounds)


@pytest.fixture(scope="module")
def models(linked: Linked, cells: dict[Cell, list[float]]) -> dict[str, Link]:
    """Each link's own times: those of the least delay."""
    return {way: Link.of(_least_delay(cells, way), CARRYING[way], linked.trip) for way in LINKS}


def _least_delay(cells: Mapping[Cell, list[float]], way: str) -> dict[tuple[int, int], float]:
    return {
        (count, depth): statistics.median(cells[Cell(way, size, depth, DELAYS_MS[0])])
        for size, count in SIZES.items()
        for depth in DEPTHS
    }


def _facts(seconds: list[float], size: int, limit: Limit) -> dict[str, Any]:
    median = statistics.median(seconds)
    return {
        "mib_per_s": round(size / MIB / median, 2),
        "limit": limit.name,
        "of_limit": f"{median / limit.seconds:.2f}",
    }


def _place(over: str, delay: float) -> dict[str, str]:
    return {"over": over, "delay": f"{delay:g} ms"}


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("size", SIZES)
def test_local(replay: Replay, cells: dict[Cell, list[float]], size: str, depth: int) -> None:
    seconds = [s for delay in DELAYS_MS for s in cells[Cell(LOCAL, size, depth, delay)]]
    rate = round(SIZES[size] / MIB / statistics.median(seconds), 2)
    replay(f"reads: {size} x {depth}", seconds, role="yardstick", mib_per_s=rate)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("way", LINKS)
@pytest.mark.parametrize("delay", DELAYS_MS)
def test_read(
    replay: Replay,
    cells: dict[Cell, list[float]],
    models: dict[str, Link],
    delay: float,
    way: str,
    size: str,
    depth: int,
) -> None:
    seconds = cells[Cell(way, size, depth, delay)]
    # the least delay is a part of what the model begins with
    limit = models[way].limit(SIZES[size], depth, (delay - DELAYS_MS[0]) / 1e3)
    cost = f"ms, {way}"
    facts = _facts(seconds, SIZES[size], limit) | {cost: statistics.median(seconds) * 1e3}
    place = {"size": {"ms": delay}, "grows": {cost: 1}, **_place(f"{size} x {depth}, {way}", delay)}
    replay(f"reads: {size} x {depth}", seconds, **facts, **place)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("way", LINKS)
@pytest.mark.parametrize("delay", DELAYS_MS)
def test_lossy(
    replay: Replay,
    lossy: dict[Lossy, list[float]],
    models: dict[str, Link],
    delay: float,
    way: str,
    loss: float,
) -> None:
    seconds = lossy[Lossy(way, loss, delay)]
    size = SIZES[LOSSY_SIZE]
    limit = models[way].limit(size, LOSSY_DEPTH, (delay - DELAYS_MS[0]) / 1e3, loss / 100)
    role = "ours" if loss else "yardstick"
    place = {"role": role, **_place(f"{way}, {loss:g} % lost", delay)}
    replay(f"lossy: {delay:g} ms, {way}", seconds, **_facts(seconds, size, limit), **place)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("way", LINKS)
@pytest.mark.parametrize("delay", DELAYS_MS)
def test_disk(
    replay: Replay, disks: dict[OfDisk, list[DiskRead]], delay: float, way: str, command: str
) -> None:
    """One command of those that a MiB of a disk takes."""
    samples = disks[OfDisk(way, command, delay)]
    seconds = [sample.seconds / sample.commands for sample in samples]
    cost = f"ms, {way}"
    facts: dict[str, Any] = {cost: statistics.median(seconds) * 1e3}
    facts["mib_per_s"] = round(1 / statistics.median(s.seconds for s in samples), 2)
    facts["commands_a_mib"] = round(statistics.median(s.commands for s in samples))
    place = {
        "size": {"ms": delay},
        "grows": {cost: 1},
        **_place(f"commands of {command}, {way}", delay),
    }
    replay(f"disk: in commands of {command}", seconds, **facts, **place)
