# SPDX-License-Identifier: Apache-2.0
"""What a choice of port costs above reading the rows: 240 ports, all but the last of a hub used.

Two groups: the rows read and parsed, then as ports and counts; the choice alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tests.fakes.sysfs import SysTree
from usbdra._native import vhci as native
from usbdra.types import Hub, Port
from usbdra.vhci.driver import VhciDriver
from usbdra.vhci.select import choose_port


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Debian's layout, with port 224, the last of its hub, as the only free high-speed one."""
    vhci = SysTree(tmp_path).vhci(8, high=15, super_=15, first_bus=10)
    for controller in range(8):
        rows = vhci.free_rows(controller).splitlines(keepends=True)
        for place in range(1, 16):
            port = controller * 30 + place - 1
            if port != 224:
                rows[place] = f"hs  {port:04d} 006 003 00030007 000011 {controller + 10}-{place}\n"
        vhci.status("".join(rows), controller)
    return tmp_path


@pytest.fixture
def ports(root: Path) -> tuple[Port, ...]:
    return VhciDriver(root).table().ports


@pytest.mark.benchmark(group="table of ports, 240 ports")
def test_read_and_parse(benchmark: BenchmarkFixture, root: Path) -> None:
    benchmark.extra_info["role"] = "yardstick"
    directory = bytes(root / "sys/devices/platform/vhci_hcd.0")
    assert len(benchmark(native.read_status, directory, 8)) == 240


@pytest.mark.benchmark(group="table of ports, 240 ports")
def test_table_of_ports_and_counts(benchmark: BenchmarkFixture, root: Path) -> None:
    benchmark.extra_info["role"] = "ours"
    table = benchmark(VhciDriver(root).table)
    assert (table.hubs[Hub.HIGH].free, table.hubs[Hub.SUPER].free) == (1, 120)


@pytest.mark.benchmark(group="choice of a port, 240 ports")
def test_choose_the_last_port(benchmark: BenchmarkFixture, ports: tuple[Port, ...]) -> None:
    benchmark.extra_info["role"] = "ours"
    assert benchmark(choose_port, ports, Hub.HIGH).port == 224
