# SPDX-License-Identifier: Apache-2.0
"""Checkpoint records: round trip, versions, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from usbdra.errors import StateError
from usbdra.state.schema import (
    Checkpoint,
    ClaimRecord,
    ClaimRef,
    DeviceNode,
    DeviceRecord,
    Held,
    Identity,
    Intent,
    LinkRecord,
    Phase,
    Route,
    from_json,
    to_json,
)
from usbdra.types import BusId, ChildNode, ClaimUid, DeviceName, Hub, NodeName, PortId

HELD = Held(
    BusId("5-1"),
    5,
    2,
    DeviceNode("/dev/bus/usb/005/002", 189, 513),
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
    (DEVICE,),
    (LinkRecord("link", "usblink-b", "direct"),),
)
CHECKPOINT = Checkpoint(NodeName("b"), "boot-1", {UID: RECORD})


def test_round_trip_through_json_text() -> None:
    assert from_json(json.loads(json.dumps(to_json(CHECKPOINT)))) == CHECKPOINT


def test_version_and_fields_are_spelled_out() -> None:
    data = to_json(CHECKPOINT)
    assert data["version"] == 1
    device = data["checkpoint"]["claims"]["11-22"]["devices"][0]
    assert device["route"] == "vhci"
    assert device["held"]["port"] == 3
    assert device["intent"] == {"port": 3, "devid": 65540}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({}, "no version"),
        ([], "no version"),
        ({"version": "1"}, "no version"),
        ({"version": 2}, "newer than 1"),
        ({"version": 0}, "no way up"),
        ({"version": 1}, "checkpoint is None, not an object"),
        ({"version": 1, "checkpoint": {"node": "b"}}, "no field 'boot_id'"),
    ],
)
def test_r51_wrong_checkpoints_are_refused(data: Any, text: str) -> None:
    with pytest.raises(StateError, match=text):
        from_json(data)


def test_a_record_under_another_uid_is_refused() -> None:
    data = to_json(CHECKPOINT)
    claims = data["checkpoint"]["claims"]
    claims["other"] = claims.pop("11-22")
    with pytest.raises(StateError, match="claims.other holds the record of claim lab/stick"):
        from_json(data)


def test_migrations_run_one_after_another() -> None:
    def from_zero(data: dict[str, Any]) -> dict[str, Any]:
        return {"version": 1, "checkpoint": {**data["old"], "claims": {}}}

    old = {"version": 0, "old": {"node": "b", "boot_id": "x"}}
    assert from_json(old, {0: from_zero}) == Checkpoint(NodeName("b"), "x", {})


def test_with_device_replaces_by_key() -> None:
    second = DeviceRecord("usb", "p", "d", DeviceName("n"), NodeName("a"), Route.DIRECT, slot=1)
    record = ClaimRecord(RECORD.ref, Phase.PREPARING, (DEVICE, second))
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
@settings(max_examples=150, deadline=1000)
def test_any_json_is_read_or_refused(data: Any) -> None:
    with pytest.raises(StateError):
        from_json({"version": 1, "checkpoint": data})
