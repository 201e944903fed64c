# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.searching import examples
from usbdra.errors import NoFreePort, Refused
from usbdra.types import Hub, Port, PortId, PortState
from usbdra.vhci.select import choose_port, hub_for_code


def layout(controllers: int, each: int, used: frozenset[int] = frozenset()) -> tuple[Port, ...]:
    return tuple(
        Port(
            PortId(number),
            number // (2 * each),
            Hub.SUPER if number % (2 * each) >= each else Hub.HIGH,
            PortState.USED if number in used else PortState.FREE,
            0,
            0,
            None,
        )
        for number in range(controllers * 2 * each)
    )


@pytest.mark.parametrize(
    ("code", "hub"), [(1, Hub.HIGH), (2, Hub.HIGH), (3, Hub.HIGH), (5, Hub.SUPER), (6, Hub.SUPER)]
)
def test_r06_hub_follows_the_speed_code(code: int, hub: Hub) -> None:
    assert hub_for_code(code) is hub


@pytest.mark.parametrize("code", [0, 4, 7])
def test_r06_unknown_speed_has_no_hub(code: int) -> None:
    with pytest.raises(Refused, match=f"speed code {code}"):
        hub_for_code(code)


def test_r03_ninth_high_speed_device_never_goes_to_the_super_hub() -> None:
    ports = layout(1, 8, used=frozenset(range(8)))
    with pytest.raises(NoFreePort, match="no high-speed port free on node-x: 8 of 8") as caught:
        choose_port(ports, Hub.HIGH, node="node-x")
    assert (caught.value.hub, caught.value.used, caught.value.capacity) == ("high", 8, 8)
    assert choose_port(ports, Hub.SUPER).port == 8


def test_r03_eight_controllers_of_fifteen_and_fifteen() -> None:
    high = frozenset(n for n in range(240) if n % 30 < 15)
    assert choose_port(layout(8, 15), Hub.SUPER).port == 15
    assert choose_port(layout(8, 15, used=high - {221}), Hub.HIGH).port == 221
    with pytest.raises(NoFreePort, match="120 of 120"):
        choose_port(layout(8, 15, used=high), Hub.HIGH)


def test_avoided_ports_count_as_taken() -> None:
    ports = layout(1, 2)
    assert choose_port(ports, Hub.HIGH, avoid={PortId(0)}).port == 1
    with pytest.raises(NoFreePort, match="2 of 2"):
        choose_port(ports, Hub.HIGH, avoid={PortId(0), PortId(1)})


def test_r07_a_controller_with_an_attaching_port_comes_last() -> None:
    first, *rest = layout(2, 2)
    attaching = replace(first, state=PortState.ATTACHING)
    assert choose_port((attaching, *rest), Hub.HIGH).port == 4
    assert choose_port((attaching, *rest), Hub.SUPER).port == 6
    full = [replace(p, state=PortState.USED) if p.controller == 1 else p for p in rest]
    assert choose_port((attaching, *full), Hub.HIGH).port == 1


def test_broken_ports_are_not_in_the_capacity_that_is_told() -> None:
    ports = layout(1, 2, used=frozenset({0, 1}))
    with pytest.raises(NoFreePort, match="1 of 1"):
        choose_port(ports, Hub.HIGH, stuck={PortId(1)})


@settings(max_examples=examples(100))
@given(
    used=st.frozensets(st.integers(0, 31)),
    avoid=st.frozensets(st.integers(0, 31)),
    hub=st.sampled_from(Hub),
)
def test_choice_is_the_lowest_free_port_of_the_hub(
    used: frozenset[int], avoid: frozenset[int], hub: Hub
) -> None:
    ports = layout(2, 8, used)
    taken = {PortId(n) for n in avoid}
    wanted = [p.port for p in ports if p.hub is hub and p.port not in used | avoid]
    if wanted:
        assert choose_port(ports, hub, avoid=taken).port == wanted[0]
    else:
        with pytest.raises(NoFreePort):
            choose_port(ports, hub, avoid=taken)
