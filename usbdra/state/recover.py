# SPDX-License-Identifier: Apache-2.0
"""What to do with every claim after a restart: records, kernel rows, files, API -> actions.

Owns the decisions. Pure: facts come in, actions come out in an order that is safe to carry out
and to repeat. What is not provably ours gets no action at all: a vhci port counts as ours only
when a record of this boot names it together with the device number that its row shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from usbdra.state.claims import ClaimRecord, DeviceRecord, Phase, Route
from usbdra.types import ClaimUid, Port, PortId, PortState


@dataclass(frozen=True, slots=True)
class Store:
    """Keep this record from now on: rebuilt from a spec, or rid of another boot's numbers."""

    uid: ClaimUid
    record: ClaimRecord


@dataclass(frozen=True, slots=True)
class RemoveFiles:
    """Remove the claim's files: they are nobody's, or name numbers of another boot."""

    uid: ClaimUid


@dataclass(frozen=True, slots=True)
class Release:
    """Give back everything the claim's record holds, then forget the claim."""

    uid: ClaimUid
    why: str


@dataclass(frozen=True, slots=True)
class Rewrite:
    """All devices are held and the files are missing or old: write them."""

    uid: ClaimUid


@dataclass(frozen=True, slots=True)
class Lost:
    """These devices of a prepared claim (DeviceRecord.key) are not on their ports any more."""

    uid: ClaimUid
    keys: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Keep:
    """Nothing to do: prepared, in place, and its links are running."""

    uid: ClaimUid


Action: TypeAlias = Store | RemoveFiles | Release | Rewrite | Lost | Keep


@dataclass(frozen=True, slots=True)
class World:
    """What is true now.

    ports: the rows of vhci. files: claims that have files, with the record their spec was made
    from, None where it cannot be read. allocated: whether the API has each claim allocated, a
    claim it does not list being gone; None when the API did not answer.
    """

    boot_id: str
    ports: Sequence[Port]
    files: Mapping[ClaimUid, ClaimRecord | None]
    allocated: Mapping[ClaimUid, bool] | None


def recover(records: Mapping[ClaimUid, ClaimRecord], world: World) -> list[Action]:
    """The actions for every claim that has a record or files, by UID.

    An API that does not answer releases nothing but what was being released or was interrupted.
    """
    rows = {port.port: port for port in world.ports}
    actions: list[Action] = []
    for uid in sorted({*records, *world.files}):
        record = records.get(uid)
        if record is None:
            actions += _unrecorded(uid, world, rows)
        elif record.boot_id != world.boot_id:
            actions += _of_another_boot(record, world)
        else:
            actions += _of_this_boot(record, world, rows)
    return actions


def _unrecorded(uid: ClaimUid, world: World, rows: Mapping[PortId, Port]) -> Iterator[Action]:
    """Files without a record: a leftover, or all that is left of a record that was lost."""
    found = world.files[uid]
    if found is None or found.boot_id != world.boot_id:
        yield RemoveFiles(uid)
        return
    yield Store(uid, found)
    yield from _of_this_boot(found, world, rows)


def _of_another_boot(record: ClaimRecord, world: World) -> Iterator[Action]:
    """Nothing that was attached outlives a boot; the numbers must not be taken for today's."""
    uid = record.ref.uid
    devices = tuple(
        replace(d, held=None, intent=None, drivers_off={}, syspath="") for d in record.devices
    )
    yield Store(uid, replace(record, boot_id=world.boot_id, devices=devices))
    if uid in world.files:
        yield RemoveFiles(uid)
    why = _reason_to_release(record, world)
    if why:
        yield Release(uid, why)


def _of_this_boot(
    record: ClaimRecord, world: World, rows: Mapping[PortId, Port]
) -> Iterator[Action]:
    uid = record.ref.uid
    why = _reason_to_release(record, world)
    if why:
        yield Release(uid, why)
        return
    lost = tuple(d.key for d in record.devices if d.exclusive and not _in_place(d, rows))
    if lost:
        yield Lost(uid, lost)
    elif world.files.get(uid) != record:
        yield Rewrite(uid)
    else:
        yield Keep(uid)


def _reason_to_release(record: ClaimRecord, world: World) -> str:
    if record.phase is Phase.RELEASING:
        return "its release did not finish"
    if record.phase is Phase.PREPARING:
        return "its prepare was interrupted"
    if world.allocated is not None and not world.allocated.get(record.ref.uid, False):
        return "the API has it no more"
    return ""


def _in_place(device: DeviceRecord, rows: Mapping[PortId, Port]) -> bool:
    """Whether a device is where its record says; for a local one the record is all there is."""
    held = device.held
    if held is None:
        return False
    if device.route is not Route.VHCI or held.port is None:
        return True
    row = rows.get(held.port)
    return (
        row is not None
        and row.state is PortState.USED  # only then does a row show numbers
        and row.devid == held.devid
        and row.local_busid in (None, held.busid)
    )
