# SPDX-License-Identifier: Apache-2.0
"""Decisions after a restart, by example and by property."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.searching import examples
from usbdra.state.claims import (
    ClaimRecord,
    ClaimRef,
    DeviceNode,
    DeviceRecord,
    Held,
    Identity,
    Intent,
    Phase,
    Route,
)
from usbdra.state.recover import (
    Action,
    Keep,
    Lost,
    Release,
    RemoveFiles,
    Rewrite,
    Store,
    World,
    recover,
)
from usbdra.types import BusId, ClaimUid, DeviceName, Hub, NodeName, Port, PortId, PortState

BOOT = "boot-2"
UID = ClaimUid("uid-1")
DEVID = 0x10002


def held(port: int | None = 3, devid: int = DEVID) -> Held:
    return Held(
        BusId("5-1"),
        5,
        2,
        DeviceNode("/dev/bus/usb/005/002", 189, 513),
        Identity("0951", "1666"),
        (),
        None if port is None else PortId(port),
        None if port is None else devid,
    )


def device(route: Route = Route.VHCI, **more: Any) -> DeviceRecord:
    values = {"held": held(None if route is Route.DIRECT else 3), **more}
    return DeviceRecord(
        "usb", "usb-a", "stick", DeviceName("stick"), NodeName("a"), route, **values
    )


def record(
    *devices: DeviceRecord, phase: Phase = Phase.PREPARED, boot: str = BOOT, uid: str = "uid-1"
) -> ClaimRecord:
    ref = ClaimRef("lab", "stick", ClaimUid(uid))
    return ClaimRecord(ref, phase, boot, devices or (device(),))


def row(
    port: int = 3,
    state: PortState = PortState.USED,
    devid: int = DEVID,
    busid: str | None = "5-1",
) -> Port:
    return Port(PortId(port), 0, Hub.HIGH, state, 3, devid, None if busid is None else BusId(busid))


def world(
    ports: Sequence[Port] = (row(),),
    files: Mapping[ClaimUid, ClaimRecord | None] | None = None,
    allocated: Mapping[ClaimUid, bool] | None = None,
) -> World:
    return World(BOOT, ports, {UID: record()} if files is None else files, allocated)


def acts(one: ClaimRecord, now: World) -> list[Action]:
    return recover({one.ref.uid: one}, now)


def test_r43_a_healthy_claim_is_left_alone() -> None:
    for allocated in (None, {UID: True}):
        assert acts(record(), world(allocated=allocated)) == [Keep(UID)]


def test_missing_files_of_a_healthy_claim_are_written_again() -> None:
    assert acts(record(), world(files={})) == [Rewrite(UID)]
    assert acts(record(), world(files={UID: None})) == [Rewrite(UID)]


@pytest.mark.parametrize(
    "ports",
    [
        [],
        [row(state=PortState.FREE, devid=0, busid=None)],
        [row(state=PortState.ERROR)],
        [row(state=PortState.ATTACHING, devid=0, busid=None)],
        [row(state=PortState.STOPPING)],
        [row(devid=DEVID + 1)],
        [row(busid="5-2")],
        [row(port=4)],
    ],
)
def test_a_port_that_is_not_ours_any_more_is_a_lost_device(ports: list[Port]) -> None:
    assert acts(record(), world(ports)) == [Lost(UID, (("usb", 0),))]


def test_local_and_observed_devices_need_no_port() -> None:
    local = record(device(Route.DIRECT))
    assert acts(local, world([], {UID: local})) == [Keep(UID)]
    observed = record(device(Route.OBSERVE, held=None))
    assert acts(observed, world([], {UID: observed})) == [Keep(UID)]


def test_a_device_that_holds_nothing_is_lost() -> None:
    assert acts(record(device(held=None)), world()) == [Lost(UID, (("usb", 0),))]


def test_interrupted_and_unfinished_claims_are_given_back() -> None:
    interrupted = record(device(held=None, intent=Intent(PortId(3), DEVID)), phase=Phase.PREPARING)
    assert acts(interrupted, world()) == [Release(UID, "its prepare was interrupted")]
    assert acts(record(phase=Phase.RELEASING), world()) == [
        Release(UID, "its release did not finish")
    ]


def test_r48_a_claim_gone_from_the_api_is_given_back() -> None:
    for allocated in ({}, {UID: False}):
        assert acts(record(), world(allocated=allocated)) == [
            Release(UID, "the API has it no more")
        ]


def test_r44_after_a_reboot_old_numbers_are_forgotten_and_the_claim_is_kept() -> None:
    old = record(boot="boot-1")
    fresh = replace(record(device(held=None)), boot_id=BOOT)
    assert acts(old, world([], {})) == [Store(UID, fresh)]
    assert acts(old, world([], {UID: old})) == [Store(UID, fresh), RemoveFiles(UID)]


def test_r44_a_foreign_port_after_a_reboot_is_not_taken_for_ours() -> None:
    old = record(boot="boot-1", phase=Phase.RELEASING)
    stored, released = acts(old, world([row()], {}))
    assert isinstance(stored, Store)
    assert stored.record.devices[0].held is None
    assert released == Release(UID, "its release did not finish")


def test_r51_a_lost_record_is_rebuilt_from_its_spec() -> None:
    now = world(allocated={UID: True})
    assert recover({}, now) == [Store(UID, record()), Keep(UID)]
    assert recover({}, world(allocated=None)) == [Store(UID, record()), Keep(UID)]
    assert recover({}, world(allocated={})) == [
        Store(UID, record()),
        Release(UID, "the API has it no more"),
    ]


def test_r61_files_that_prove_nothing_are_removed() -> None:
    for found in (None, record(boot="boot-1")):
        assert recover({}, world(files={UID: found})) == [RemoveFiles(UID)]


def test_foreign_ports_alone_give_no_action() -> None:
    assert recover({}, world([row(0), row(1), row(2)], {})) == []


uids = st.sampled_from(["uid-1", "uid-2", "uid-3"])
ports = st.integers(0, 3)
devids = st.sampled_from([DEVID, DEVID + 1])
helds = st.none() | st.builds(held, ports, devids)
devices = st.builds(
    device,
    st.sampled_from(Route),
    held=helds,
    intent=st.none() | st.builds(Intent, ports.map(PortId), devids),
)


def record_for(uid: str) -> st.SearchStrategy[ClaimRecord]:
    return st.builds(
        lambda phase, boot, one: record(one, phase=phase, boot=boot, uid=uid),
        st.sampled_from(Phase),
        st.sampled_from([BOOT, "boot-1"]),
        devices,
    )


records = st.sets(uids).flatmap(
    lambda chosen: st.fixed_dictionaries({ClaimUid(uid): record_for(uid) for uid in sorted(chosen)})
)
files = st.sets(uids).flatmap(
    lambda chosen: st.fixed_dictionaries(
        {ClaimUid(uid): st.none() | record_for(uid) for uid in sorted(chosen)}
    )
)
rows = st.lists(
    st.builds(
        row, ports, st.sampled_from(PortState), devids, st.sampled_from([None, "5-1", "5-2"])
    ),
    max_size=4,
    unique_by=lambda p: p.port,
)
worlds = st.builds(
    World,
    st.just(BOOT),
    rows,
    files,
    st.none() | st.dictionaries(uids.map(ClaimUid), st.booleans()),
)


def carry_out(
    held_records: Mapping[ClaimUid, ClaimRecord], now: World, actions: Sequence[Action]
) -> tuple[dict[ClaimUid, ClaimRecord], World]:
    """What records and files are after the actions; lost devices come back on their ports."""
    kept, on_disk = dict(held_records), dict(now.files)
    ports_now = {p.port: p for p in now.ports}
    for action in actions:
        if isinstance(action, Store):
            kept[action.uid] = action.record
        elif isinstance(action, RemoveFiles):
            del on_disk[action.uid]
        elif isinstance(action, Release):
            del kept[action.uid]
            on_disk.pop(action.uid, None)
        elif isinstance(action, Rewrite):
            on_disk[action.uid] = kept[action.uid]
    return kept, replace(now, ports=list(ports_now.values()), files=on_disk)


@given(records, worlds)
@settings(max_examples=examples(50))
def test_actions_bring_a_world_in_which_nothing_is_left_to_do(
    before: dict[ClaimUid, ClaimRecord], now: World
) -> None:
    actions = recover(before, now)
    kept, later = carry_out(before, now, actions)
    again = recover(kept, later)
    for action in again:  # an observed device alone has its files written once it is looked at
        looks = not any(d.exclusive for d in kept[action.uid].devices)
        assert isinstance(action, Keep | Lost) or (isinstance(action, Rewrite) and looks)
    assert {action.uid for action in again} == set(kept)


@given(records, worlds)
@settings(max_examples=examples(50))
def test_every_claim_is_decided_once_and_only_for_a_reason(
    before: dict[ClaimUid, ClaimRecord], now: World
) -> None:
    actions = recover(before, now)
    stored = {a.uid: a.record for a in actions if isinstance(a, Store)}
    final = {**before, **stored}
    for uid in {*before, *now.files}:
        verdicts = [a for a in actions if a.uid == uid and not isinstance(a, Store)]
        assert len([a for a in verdicts if not isinstance(a, RemoveFiles)]) <= 1
        for action in verdicts:
            if isinstance(action, Release):
                gone = now.allocated is not None and not now.allocated.get(uid, False)
                assert gone or final[uid].phase is not Phase.PREPARED
            if isinstance(action, Keep | Rewrite):
                assert final[uid].phase is Phase.PREPARED
                assert all(d.held for d in final[uid].devices if d.exclusive)
            if isinstance(action, RemoveFiles):
                assert uid in now.files
    for after in stored.values():
        assert after.boot_id == BOOT
