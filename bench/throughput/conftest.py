# SPDX-License-Identifier: Apache-2.0
"""One bed for all that is measured over a network that is slow or loses packets.

Seconds are measured inside the nodes; a benchmark replays them on a clock of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.throughput import settings
from bench.throughput.network import push
from tests.bed.bed import Bed
from tests.bed.kernel_bed import KernelBed, tidy
from tests.kernel.product import certificates

ROUNDS = int(os.environ.get("THROUGHPUT_ROUNDS", "3"))
LOGS = Path("build/results/throughput")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.kernel)
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session")
def rounds() -> int:
    """How often each figure is taken: THROUGHPUT_ROUNDS."""
    return ROUNDS


@pytest.fixture(scope="session")
def bed() -> Iterator[Bed]:
    """Node a with kernel 6.12 has the devices, node b with 6.1 uses them."""
    gadgets = f"dummy_hcd.num={len(settings.SETTINGS)}"
    with KernelBed(parameters=(gadgets, "usb-storage.delay_use=0")) as machines:
        try:
            tidy(machines)
            push(machines)
            certificates(machines)
            yield machines
        finally:
            machines.save_logs(LOGS)
