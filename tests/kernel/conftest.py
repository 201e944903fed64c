# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the kernel tests: one bed a session, clean nodes a test, both directions.

USBDRA_BED=running uses the bed that `python -m tests.bed up` left running, for quick rounds.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.bed.bed import Bed, adopt
from tests.bed.instance import detached_beds
from tests.bed.kernel_bed import KernelBed, tidy
from tests.bed.node import Node
from tests.kernel.product import certificates

LOGS = Path("build/results/kernel")
# usb-storage waits a second before it looks at a disk, for sticks that need it; gadgets do not, and
# a session has some two hundred such seconds. Benchmarks and cluster tests leave it as it is.
QUICK = ("usb-storage.delay_use=0",)
# What systemd.py starts.
PACKAGES = ("dbus", "systemd")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks, and the order: what leaves the nodes useless until they boot anew comes last."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.kernel)
    items.sort(key=lambda item: item.get_closest_marker("spoils") is not None)


@pytest.fixture(scope="session")
def running() -> Iterator[Bed]:
    """Two nodes, a with kernel 6.12 and b with 6.1."""
    if os.environ.get("USBDRA_BED") == "running":
        bed: Bed = adopt(detached_beds()[0])
    else:
        bed = KernelBed(packages=PACKAGES, parameters=QUICK)
        bed.up()
    try:
        yield bed
    finally:
        bed.save_logs(LOGS)
        bed.down()


@pytest.fixture
def bed(running: Bed) -> Iterator[Bed]:
    """The bed with clean nodes, before and after; a kernel oops fails the test."""
    tidy(running)
    yield running
    for node in running.nodes.values():
        node.vm.check()
        node.call("raw.drop_silent")
    tidy(running)


@dataclass(frozen=True)
class Pair:
    """One direction: the node that has the device, and the node that uses it."""

    exporter: Node
    importer: Node


def tls_stat(node: Node) -> dict[str, int]:
    """The node's counters of kernel TLS. They count since its boot: other tests count, too."""
    lines = node.sh("cat /proc/net/tls_stat").splitlines()
    return {name: int(value) for name, value in (line.split() for line in lines)}


@pytest.fixture(params=["a-to-b", "b-to-a"])
def pair(bed: Bed, request: Any) -> Pair:
    """Each kernel exports and each imports: 6.12 to 6.1, then 6.1 to 6.12."""
    first, _, second = request.param.split("-")
    return Pair(bed[first], bed[second])


@pytest.fixture
def a_to_b(bed: Bed) -> Pair:
    """6.12 exports, 6.1 imports: for what does not depend on a kernel, or is of 6.1's ports."""
    return Pair(bed["a"], bed["b"])


@pytest.fixture
def b_to_a(bed: Bed) -> Pair:
    """6.1 exports, 6.12 imports."""
    return Pair(bed["b"], bed["a"])


@pytest.fixture(scope="session")
def trusted(running: Bed) -> None:
    """Certificates on both nodes, of one CA."""
    certificates(running)


@pytest.fixture(params=["a", "b"])
def node(bed: Bed, request: Any) -> Node:
    """Each node in turn: kernel 6.12, then 6.1."""
    return bed[request.param]
