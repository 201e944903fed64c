# SPDX-License-Identifier: Apache-2.0
"""The snapshot of a node: a cold look at 128 devices, and one event among few and many.

Goal: the cost of an event does not grow with the number of devices, so the ratio of the two
event benchmarks is the number to watch; 1.3 leaves room for colder caches.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tests.fakes.sysfs import FakeDevice, SysTree
from tests.fakes.uevents import device_event, interface_event
from usbdra.discovery.inventory import Inventory, scan


def grow(root: Path, devices: int) -> list[FakeDevice]:
    """A tree of `devices` sticks, 16 to a controller."""
    tree = SysTree(root)
    sticks: list[FakeDevice] = []
    for bus in range(1, (devices + 15) // 16 + 1):
        hub = tree.controller(f"0000:{bus:02x}:14.0").root_hub(bus)
        count = min(16, devices - len(sticks))
        sticks += [hub.plug(p, serial=b"S%d%02d" % (bus, p)) for p in range(1, count + 1)]
    return sticks


def test_cold_look_at_128_devices(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    grow(tmp_path, 128)
    benchmark.group = "snapshot of a node"
    snapshot = benchmark(lambda: scan(tmp_path, node="a"))
    assert len(snapshot.offers) == 128


@pytest.mark.parametrize("devices", [16, 128])
def test_one_event(benchmark: BenchmarkFixture, tmp_path: Path, devices: int) -> None:
    """Reads the device, names it, judges it, and makes the new snapshot."""
    benchmark.group = "one event on a snapshot, by number of devices"
    place = {"role": "yardstick"} if devices == 16 else {"role": "ours", "goal": 1.3}
    benchmark.extra_info.update(place)
    stick = grow(tmp_path, devices)[devices // 2]
    inventory = Inventory(tmp_path, node="a")
    inventory.resync()
    add, remove = device_event("add", stick), device_event("remove", stick)

    def replug() -> int:
        inventory.apply([remove])
        inventory.apply([add])
        return len(inventory.snapshot.offers)

    assert benchmark(replug) == devices


@pytest.mark.parametrize("events", [1, 12])
def test_a_driver_that_lets_go(benchmark: BenchmarkFixture, tmp_path: Path, events: int) -> None:
    """A bind to usbip-host sends a dozen events, in as many batches; they cost one look."""
    benchmark.group = "events of one bind on a snapshot"
    place = {"role": "yardstick"} if events == 1 else {"role": "ours", "goal": 1.3}
    benchmark.extra_info.update(place)
    stick = grow(tmp_path, 128)[64]
    inventory = Inventory(tmp_path, node="a")
    inventory.resync()
    event = interface_event("unbind", stick)

    def bind() -> int:
        for _ in range(events):
            inventory.note([event])
        inventory.refresh()
        return len(inventory.snapshot.offers)

    assert benchmark(bind) == 128
