# SPDX-License-Identifier: Apache-2.0
"""Ports for claims: counted by the scheduler, chosen by the agent, in foreign hands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.unit.plugin.records import REF, device, held, record
from usbdra.agent.ports import PortCount, uncounted
from usbdra.errors import KernelUnsupported, NoFreePort
from usbdra.plugin.contracts import Order
from usbdra.state.claims import ClaimRecord, Intent, Route
from usbdra.types import ClaimUid, DeviceName, Hub, NodeName, Port, PortId, PortState
from usbdra.vhci.driver import VhciTable
from usbdra.vhci.table import count_hubs

COUNTED = record(device(held=held(port=0)))
ALONE = replace(
    record(device(held=held(port=1)), ref=replace(REF, uid=ClaimUid("uid-2"))), links=()
)


class Claims:
    def __init__(self, *records: ClaimRecord) -> None:
        self._records = {each.ref.uid: each for each in records}

    def get(self, uid: ClaimUid) -> ClaimRecord | None:
        return self._records.get(uid)

    def all(self) -> Mapping[ClaimUid, ClaimRecord]:
        return self._records


def table(*used: int, count: int = 4) -> VhciTable:
    """So many ports on each hub, the high-speed ones first."""
    ports = tuple(
        Port(
            PortId(number),
            0,
            Hub.HIGH if number < count else Hub.SUPER,
            PortState.USED if number in used else PortState.FREE,
            3,
            0,
            None,
        )
        for number in range(2 * count)
    )
    return VhciTable(ports, count_hubs(ports))


def counter(claims: Claims, *used: int, limit: int | None = None) -> PortCount:
    return PortCount(lambda: table(*used), claims, limit, "node-b")


def order(record: ClaimRecord, name: str = "other") -> Order:
    return Order(record.ref, DeviceName(name), NodeName("a"), Hub.HIGH, None, host_drivers=True)


@pytest.mark.parametrize(
    ("claims", "used", "limit", "high"),
    [
        pytest.param(Claims(), (), None, 4, id="all free"),
        pytest.param(Claims(), (2, 3), None, 2, id="foreign ports are not offered"),
        pytest.param(Claims(), (), 3, 3, id="at most the limit"),
        pytest.param(Claims(), (2, 3), 3, 2, id="what is left of foreign tools, below the limit"),
        pytest.param(Claims(COUNTED), (0,), 3, 3, id="the scheduler counts its own by itself"),
        pytest.param(Claims(ALONE), (1,), None, 3, id="the agent's own choice is taken off"),
        pytest.param(Claims(ALONE), (1,), 3, 2, id="and off the limit"),
        pytest.param(Claims(COUNTED, ALONE), (0, 1, 3), 1, 0, id="never below none"),
    ],
)
def test_ports_that_are_published(
    claims: Claims, used: tuple[int, ...], limit: int | None, high: int
) -> None:
    published = counter(claims, *used, limit=limit).published()
    assert published == {Hub.HIGH: high, Hub.SUPER: 4 if limit is None else limit}


def test_a_port_that_is_about_to_be_taken_is_ours() -> None:
    intent = Intent(PortId(0), 0x10002)
    claims = Claims(record(device(held=None, intent=intent)))
    assert counter(claims, 0).published()[Hub.HIGH] == 4


def test_without_the_module_there_are_none() -> None:
    def missing() -> VhciTable:
        raise KernelUnsupported("vhci_hcd is not loaded")

    assert PortCount(missing, Claims(), None, "node-b").published() == {}


def test_ports_that_claims_did_not_ask_for() -> None:
    assert uncounted(COUNTED) == {}
    assert uncounted(ALONE) == {Hub.HIGH: 1}
    # a port whose parameters name the device
    by_name = replace(ALONE, devices=(device(device="vhci-high", request="usb/remote"),))
    assert uncounted(by_name) == {}
    assert uncounted(replace(ALONE, devices=(device(route=Route.DIRECT, hub=None),))) == {}


def test_a_device_alone_finds_every_port_with_claims() -> None:
    new = replace(ALONE, ref=replace(REF, uid=ClaimUid("uid-3")), devices=(device(held=None),))
    full = counter(Claims(COUNTED, ALONE, new), 0, 1, limit=2)
    with pytest.raises(NoFreePort, match="no high-speed port free on node-b: 2 of 2 in use"):
        full.check(order(new))
    counter(Claims(COUNTED, ALONE, new), 0, 1, limit=3).check(order(new))
    # a port that the scheduler gave away is not refused
    full.check(order(COUNTED))
    # a device that was lost takes its own port's place
    counter(Claims(ALONE), 1, limit=1).check(order(ALONE, "stick"))


def test_ports_by_what_they_are() -> None:
    def high(claims: Claims, *used: int, limit: int | None = None) -> dict[str, int]:
        found = counter(claims, *used, limit=limit).states()
        return {state: number for (hub, state), number in found.items() if hub == "high"}

    none = {"free": 0, "claims": 0, "foreign": 0, "withheld": 0}
    assert high(Claims()) == {**none, "free": 4}
    assert high(Claims(COUNTED), 0, 3) == {"free": 2, "claims": 1, "foreign": 1, "withheld": 0}
    assert high(Claims(COUNTED), 0, 3, limit=1) == {
        **none,
        "claims": 1,
        "foreign": 1,
        "withheld": 2,
    }
    assert sum(high(Claims(COUNTED, ALONE), 0, 1, 2, limit=2).values()) == 4
