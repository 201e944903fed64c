# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import tracemalloc

import pytest

from usbdra._native import vhci as native
from usbdra.errors import NotFound
from usbdra.types import BusId, Hub, Port, PortId, PortState
from usbdra.vhci.table import (
    HubCount,
    KnownPorts,
    RowCodes,
    count_hubs,
    find,
    port_of,
    root_hub_port,
)

CODES = RowCodes(native.HUB_HIGH, native.HUB_SUPER, native.SOCKFD_NONE)

S1 = b"""\
hub port sta spd dev      sockfd local_busid
hs  0000 004 000 00000000 000000 0-0
hs  0001 006 003 00030007 000011 5-2
ss  0002 007 000 00000000 000000 0-0
ss  0003 006 005 00010002 4294967295 6-2
"""
S5 = b"""\
port sta spd dev      socket           local_busid
0000 004 000 00000000 0000000000000000 0-0
0001 006 003 00030007 00000000c5a7bb80 3-2
"""


def ports(*texts: bytes) -> tuple[Port, ...]:
    return KnownPorts(CODES).of(native.parse(list(texts)))


def test_rows_become_ports() -> None:
    free, used, error, stopping = ports(S1)
    assert free == Port(PortId(0), 0, Hub.HIGH, PortState.FREE, 0, 0, None)
    assert used == Port(PortId(1), 0, Hub.HIGH, PortState.USED, 3, 0x30007, BusId("5-2"))
    assert (error.hub, error.state) == (Hub.SUPER, PortState.ERROR)
    assert (stopping.state, stopping.local_busid) == (PortState.STOPPING, "6-2")


def test_a_look_keeps_its_own_rows_and_no_older_ones() -> None:
    """Each attachment has numbers of its own: what is kept of it for ever is a leak."""
    known = KnownPorts(CODES)
    tracemalloc.start()
    try:
        for devid in range(3000):
            rows = native.parse([S1.replace(b"00030007", b"%08x" % devid)])
            known.of(rows)
            if devid == 1000:
                gc.collect()
                before, _ = tracemalloc.get_traced_memory()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 20_000
        assert known.of(rows) == tuple(port_of(row, CODES) for row in rows)
    finally:
        tracemalloc.stop()
    first, again = known.of(native.parse([S1])), known.of(native.parse([S1]))
    assert all(one is other for one, other in zip(first, again, strict=True))


def test_capacity_comes_from_the_rows_and_leaves_broken_ports_out() -> None:
    assert count_hubs(ports(S1)) == {Hub.HIGH: HubCount(2, 1, 0), Hub.SUPER: HubCount(2, 0, 1)}
    counts = count_hubs(ports(S1), stuck={PortId(3)})
    assert (counts[Hub.SUPER].capacity, counts[Hub.SUPER].used) == (0, 0)
    assert (counts[Hub.HIGH].capacity, counts[Hub.HIGH].used) == (2, 1)


def test_a_stuck_port_that_came_free_is_free() -> None:
    assert count_hubs(ports(S1), stuck={PortId(0)})[Hub.HIGH] == HubCount(2, 1, 0)


def test_rows_without_hub_are_high_speed_ports() -> None:
    old = ports(S5)
    assert [port.hub for port in old] == [None, None]
    assert count_hubs(old) == {Hub.HIGH: HubCount(2, 1, 0), Hub.SUPER: HubCount(0, 0, 0)}
    assert root_hub_port(old, old[1]) == 2


def test_place_on_the_root_hub_counts_from_one_per_hub_and_controller() -> None:
    lines = S1.splitlines(keepends=True)
    second = lines[0] + b"".join(
        line[:4] + b"%04d" % (number + 4) + line[8:] for number, line in enumerate(lines[1:])
    )
    both = ports(S1, second)
    assert [root_hub_port(both, port) for port in both] == [1, 2, 1, 2, 1, 2, 1, 2]
    assert [port.controller for port in both] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_find_names_the_missing_port() -> None:
    assert find(ports(S1), PortId(2)).state is PortState.ERROR
    with pytest.raises(NotFound, match="no port 99"):
        find(ports(S1), PortId(99))
