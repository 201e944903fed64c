# SPDX-License-Identifier: Apache-2.0
"""One bed for all kernel benchmarks, and the samples that several of them tell of.

Seconds are measured inside the nodes; a benchmark replays them on a clock of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.kernel import copies, links, peers, tunnels
from bench.kernel.copies import Copy, Place
from bench.kernel.links import Sample
from tests.bed.bed import Bed
from tests.bed.kernel_bed import KernelBed, tidy

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "7"))
LOGS = Path("build/results/bench-kernel")

Samples = dict[str, list[Sample]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.kernel)
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session")
def bed() -> Iterator[Bed]:
    """Node a with kernel 6.12 has the sticks, node b with 6.1 uses them."""
    with KernelBed(packages=tunnels.PACKAGES) as machines:
        try:
            tidy(machines)
            links.prepare(machines)
            yield machines
        finally:
            machines.save_logs(LOGS)


@pytest.fixture(scope="session")
def attached(bed: Bed) -> Samples:
    """Attaches in turn, ours and those of others, so that all see the same machine; the first of
    each is warm-up."""
    found: Samples = {way: [] for way in links.WAYS}
    if links.GO in found:
        peers.push_go(bed)
    with links.stick(bed), links.served(bed), links.stock_served(bed):
        for _ in range(ROUNDS + 1):
            for way, samples in found.items():
                with links.WAYS[way](bed) as sample:
                    samples.append(sample)
    return {who: samples[1:] for who, samples in found.items()}


@pytest.fixture(scope="module")
def copied(bed: Bed) -> dict[Place, list[Copy]]:
    """Copies over every kind of link, in turn; see copies.py."""
    with copies.linked(bed) as disks:
        return copies.measure(bed, disks, ROUNDS)
