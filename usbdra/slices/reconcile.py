# SPDX-License-Identifier: Apache-2.0
"""Which ResourceSlices to write and delete so that the API shows what the node offers.

Pure: wanted and stored objects in, steps out. Owns the rules of a pool (one generation, the
right count, no device twice) in every intermediate state. Must not talk to anyone.

A pool whose slices differ in any way is written whole under a new generation: the scheduler
takes only the newest generation and only when it is complete
(k8s.io/dynamic-resource-allocation/structured/internal/*/pools), so a half-written change is
never acted on. Stale slices go last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Write:
    """Create the slice, or replace it when `stored` names the version it replaces."""

    wanted: Object
    stored: Object | None


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a slice that no wanted pool has any more."""

    stored: Object


Step = Write | Delete

OURS = ("attributes", "capacity", "taints", "allowMultipleAllocations")
"""Fields of a device that are only there when we write them."""


def plan(wanted: Iterable[Object], stored: Iterable[Object]) -> list[Step]:
    """Steps in the order they must be carried out; empty when nothing is to be done.

    wanted: manifests of `build`, their generation is ignored. stored: all slices of this node
    and driver as the API holds them. Each run may be cut short after any step: the next one
    starts from what is stored then.
    """
    want, have = _by_pool(wanted), _by_pool(stored)
    steps: list[Step] = []
    for pool in sorted(want.keys() | have.keys()):
        steps += _plan_pool(want.get(pool, {}), have.get(pool, {}))
    writes = [step for step in steps if isinstance(step, Write)]
    deletes = [step for step in steps if isinstance(step, Delete)]
    return [*writes, *deletes]


def covers(stored: Any, wanted: Any) -> bool:
    """True if the stored value holds all that was wanted; the server may add fields.

    Lists match item by item: an item more or less is a difference.
    """
    if isinstance(wanted, Mapping):
        return isinstance(stored, Mapping) and all(
            key in stored and covers(stored[key], value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(stored, list)
            and len(stored) == len(wanted)
            and all(covers(a, b) for a, b in zip(stored, wanted, strict=True))
        )
    return bool(stored == wanted)


def dropped_fields(stored: Object, wanted: Object) -> frozenset[str]:
    """Fields of devices that the server did not keep: a feature gate is off (R52).

    Names as in the API: `allowMultipleAllocations`, `taints`, `capacity`, ...; the answer of a
    create or replace is compared with what was sent.
    """
    kept = {device["name"]: device for device in stored["spec"].get("devices") or []}
    missing: set[str] = set()
    for device in wanted["spec"]["devices"]:
        got = kept.get(device["name"], {})
        missing |= {key for key in device if key not in got}
        for name, capacity in device.get("capacity", {}).items():
            had = got.get("capacity", {}).get(name, {})
            missing |= {f"capacity.{key}" for key in capacity if key not in had}
    return frozenset(missing)


def _by_pool(slices: Iterable[Object]) -> dict[str, dict[str, Object]]:
    pools: dict[str, dict[str, Object]] = {}
    for item in slices:
        pools.setdefault(item["spec"]["pool"]["name"], {})[item["metadata"]["name"]] = item
    return pools


def _plan_pool(want: dict[str, Object], have: dict[str, Object]) -> list[Step]:
    generations = {int(item["spec"]["pool"]["generation"]) for item in have.values()}
    newest = max(generations, default=0)
    if want and _settled(want, have, newest):
        stale: list[Step] = [Delete(item) for name, item in have.items() if name not in want]
        return stale
    steps: list[Step] = []
    for name in sorted(want):
        wanted = deepcopy(want[name])
        wanted["spec"]["pool"]["generation"] = newest + 1
        steps.append(Write(wanted, have.get(name)))
    return steps + [Delete(item) for name, item in sorted(have.items()) if name not in want]


def _settled(want: dict[str, Object], have: dict[str, Object], newest: int) -> bool:
    """All wanted slices are stored, equal, and of the newest generation."""
    for name, wanted in want.items():
        stored = have.get(name)
        if stored is None or int(stored["spec"]["pool"]["generation"]) != newest:
            return False
        spec = deepcopy(wanted["spec"])
        del spec["pool"]["generation"]
        if not covers(stored["spec"], spec) or not _owned(stored, wanted):
            return False
        if _more_than_wanted(stored["spec"], spec):
            return False
    return True


def _more_than_wanted(stored: Object, wanted: Object) -> bool:
    """A device still has what it is not to have any more: a taint, an attribute, a capacity.

    Other fields the server may add as it likes.
    """
    for had, want in zip(stored.get("devices") or (), wanted["devices"], strict=True):
        if any(had.get(field) and not want.get(field) for field in OURS):
            return True
        for field in ("attributes", "capacity"):
            if had.get(field, {}).keys() - want.get(field, {}).keys():
                return True
    return False


def _owned(stored: Object, wanted: Object) -> bool:
    """Labels and owner as wanted: else we lose sight of the slice, or it outlives its node."""
    meta, want = stored["metadata"], wanted["metadata"]
    return covers(meta.get("labels", {}), want.get("labels", {})) and covers(
        meta.get("ownerReferences", []), want.get("ownerReferences", [])
    )
