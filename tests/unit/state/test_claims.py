# SPDX-License-Identifier: Apache-2.0
"""Claim records: round trip, versions, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.searching import examples
from usbdra.state.claims import (
    ClaimRecord,
    ClaimRef,
    ClaimSchema,
    DeviceNode,
    DeviceRecord,
    Held,
    Identity,
    Intent,
    LinkRecord,
    Phase,
    Route,
)
from usbdra.types import BusId, ChildNode, ClaimUid, DeviceName, Hub, NodeName, PortId

HELD = Held(
    BusId("5-1"),
    5,
    2,
    DeviceNode("/dev/bus/usb/005/002", 189, 513),
    Identity("0951", "1666", "ABC"),
    (ChildNode("tty", "/dev/ttyACM0", 166, 0, 1),),
    PortId(3),
    0x10004,
)
DEVICE = DeviceRecord(
    request="usb/remote",
    pool="usblink-b",
    device="vhci-high",
    name=DeviceName("usb-0951-1666-abc"),
    node=NodeName("a"),
    route=Route.VHCI,
    share_id="5b4e",
    hub=Hub.HIGH,
    identity=Identity("0951", "1666", "ABC"),
    config={"mode": 0o660},
    intent=Intent(PortId(3), 0x10004),
    held=HELD,
)
UID = ClaimUid("11-22")
RECORD = ClaimRecord(
    ClaimRef("lab", "stick", UID, "usb"),
    Phase.PREPARED,
    "boot-1",
    (DEVICE,),
    (LinkRecord("link", "usblink-b", "direct"),),
)
SCHEMA = ClaimSchema()


def test_round_trip_through_json_text() -> None:
    assert SCHEMA.decode(1, json.loads(json.dumps(SCHEMA.encode(RECORD)))) == RECORD


def test_fields_are_spelled_out() -> None:
    data = SCHEMA.encode(RECORD)
    device = data["devices"][0]
    assert (SCHEMA.kind, SCHEMA.version) == ("claim", 1)
    assert device["route"] == "vhci"
    assert device["held"]["port"] == 3
    assert device["intent"] == {"port": 3, "devid": 65540}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({}, "claim has no field 'ref'"),
        ({"ref": {"namespace": "n"}}, "claim.ref has no field 'name'"),
        ({"phase": "done"}, "not one of preparing, prepared, releasing"),
        ({"colour": 1}, "claim has an unknown field 'colour'"),
    ],
)
def test_r51_wrong_records_are_refused(data: dict[str, Any], text: str) -> None:
    full = dict(SCHEMA.encode(RECORD)) if "ref" not in data and data else {}
    with pytest.raises(ValueError, match=text):
        SCHEMA.decode(1, {**full, **data})


def test_migrations_run_one_after_another() -> None:
    def from_zero(data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "boot_id": "unknown"}

    old = {key: value for key, value in SCHEMA.encode(RECORD).items() if key != "boot_id"}
    assert ClaimSchema({0: from_zero}).decode(0, old).boot_id == "unknown"
    with pytest.raises(ValueError, match="no way up from version 0"):
        SCHEMA.decode(0, old)


def test_with_device_replaces_by_key() -> None:
    second = DeviceRecord("usb", "p", "d", DeviceName("n"), NodeName("a"), Route.DIRECT, slot=1)
    record = ClaimRecord(RECORD.ref, Phase.PREPARING, "b", (DEVICE, second))
    changed = DeviceRecord("usb", "p", "d", DeviceName("m"), NodeName("a"), Route.DIRECT, slot=1)
    assert record.with_device(changed).devices == (DEVICE, changed)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (Identity("0951", "1666", "ABC"), True),
        (Identity("0951", "1666", None), True),
        (Identity("0951", "1666", "ABD"), False),
        (Identity("0951", "1667", "ABC"), False),
    ],
)
def test_identity(other: Identity, same: bool) -> None:
    assert Identity("0951", "1666", "ABC").same(other) is same


TEXT = st.text(max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
@settings(max_examples=examples(150))
def test_any_json_is_read_or_refused(data: Any) -> None:
    with pytest.raises(ValueError, match="claim"):
        SCHEMA.decode(1, {"phase": data})
