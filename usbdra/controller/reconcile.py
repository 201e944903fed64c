# SPDX-License-Identifier: Apache-2.0
"""One device: from everything that is observed of it to what has to be written. Pure.

Owns the life of a NodeUSBDevice and of its assignment. A decision is a step: its acts change
what is observed, and the next decision goes on from there, so every act may be the last before a
crash. In particular the very namespace (its UID) is on record in the status before anything is
made there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from usbdra.controller import conditions
from usbdra.controller.acts import Act, Apply, Decision, Delete, Object, Patch, What
from usbdra.controller.assignment import Holding, Progress, establish, withdraw
from usbdra.controller.conditions import Condition, NodeState, Pod, timestamp
from usbdra.controller.published import Published, place_fields, place_of, status_attributes
from usbdra.controller.uses import Use
from usbdra.kube.custom import MANAGED_BY, MANAGER, Contract


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace that exists; `active` False while it is being deleted."""

    uid: str
    active: bool = True


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything known of one NodeUSBDevice's name at one moment."""

    name: str
    now: datetime
    contract: Contract
    grace: timedelta
    record: Object | None = None
    """The NodeUSBDevice."""
    device: Published | None = None
    node: NodeState = NodeState.GONE
    """The device's node, or the node it was last on."""
    namespaces: Mapping[str, Namespace] = field(default_factory=dict)
    """Those that are named anywhere in here and exist."""
    holdings: Mapping[str, Holding] = field(default_factory=dict)
    """What namespaces have under this name."""
    uses: Sequence[Use] = ()
    machines: Mapping[Pod, str] = field(default_factory=dict)
    """Virtual machines by the pods that hold claims for them."""


def decide(seen: Observed) -> Decision:
    """The next step; no acts when all is as it should be."""
    if seen.record is None and seen.device is None and not seen.holdings:
        return Decision()
    return _Step(seen).decision()


class _Step:
    """One decision; one use."""

    def __init__(self, seen: Observed) -> None:
        self._seen = seen
        record = seen.record or {}
        self._spec: Mapping[str, Any] = record.get("spec") or {}
        self._status: Mapping[str, Any] = record.get("status") or {}
        self._going = bool((record.get("metadata") or {}).get("deletionTimestamp"))
        given = self._status.get("assignment") or {}
        self._given: tuple[str, str] | None = (
            (given["namespace"], given["namespaceUID"]) if given else None
        )

    def decision(self) -> Decision:
        """Clean up elsewhere, then make what is wanted, and say in the status how far it is."""
        seen = self._seen
        wanted = "" if self._going else str(self._spec.get("assignedNamespace") or "")
        before: list[Act] = []
        if wanted and self._given and self._given[0] == wanted and self._lost(wanted):
            before.append(self._forget())
            wanted = ""
        places = set(seen.holdings) | ({self._given[0]} if self._given else set())
        leaving = self._leave(sorted(places - {wanted}))
        arriving, given = Progress(), None
        if leaving.waits:
            given = self._given
        elif wanted:
            arriving, given = self._arrive(wanted)
        assigned = _assigned(wanted, leaving, arriving)
        going = {
            act.namespace or ""
            for act in leaving.acts
            if isinstance(act, Delete) and act.what is What.DEVICE
        }
        shown = self._show(wanted, assigned, given, going)
        acts = [*before, *shown, *leaving.acts, *arriving.acts]
        if leaving.waits or arriving.waits or wanted or given:
            return Decision(tuple(acts))
        return self._ended(acts)

    def _lost(self, namespace: str) -> bool:
        """The very namespace the device was given to is gone, or going."""
        found = self._seen.namespaces.get(namespace)
        return found is None or not found.active or (namespace, found.uid) != self._given

    def _forget(self) -> Act:
        """A choice ends with its namespace; a new one of the same name does not inherit it."""
        assert self._seen.record is not None
        version = self._seen.record["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version}, "spec": {"assignedNamespace": ""}}
        return Patch(What.NODE_DEVICE, self._seen.name, patch)

    def _leave(self, namespaces: Sequence[str]) -> Progress:
        seen, force = self._seen, bool(self._spec.get("force"))
        steps = [
            withdraw(
                seen.name,
                namespace,
                seen.holdings.get(namespace, Holding()),
                [use for use in seen.uses if use.namespace == namespace],
                seen.contract,
                force=force,
            )
            for namespace in namespaces
        ]
        acts = tuple(act for step in steps for act in step.acts)
        return Progress(acts, "; ".join(step.waits for step in steps if step.waits))

    def _arrive(self, wanted: str) -> tuple[Progress, tuple[str, str] | None]:
        """Progress in the wanted namespace, and what must be on record of it by then."""
        seen = self._seen
        found = seen.namespaces.get(wanted)
        if found is None or not found.active:
            return Progress((), f"waits for namespace {wanted}, which does not exist"), None
        held = seen.holdings.get(wanted, Holding())
        progress = establish(seen.name, wanted, held, seen.device, seen.contract)
        return progress, (wanted, found.uid)

    def _show(
        self,
        wanted: str,
        assigned: Condition,
        given: tuple[str, str] | None,
        going: Set[str],
    ) -> list[Act]:
        """Writes that make object and statuses say what is the case.

        going: namespaces whose USBDevice is deleted in this very step.
        """
        seen = self._seen
        last = str(seen.device.node if seen.device else place_of(self._status))
        ready = conditions.ready(seen.device, last, seen.node)
        attached = conditions.attached(seen.uses, seen.machines)
        acts: list[Act] = []
        if seen.record is None and seen.device is not None:
            body = {"metadata": {"name": seen.name, "labels": {MANAGED_BY: MANAGER}}}
            acts.append(Apply(What.NODE_DEVICE, body))
        if seen.record is not None or seen.device is not None:
            status = self._common(seen.record, [ready, assigned, attached])
            if given is not None:
                status["assignment"] = {"namespace": given[0], "namespaceUID": given[1]}
            if seen.device is None:
                status["absentSince"] = self._absent_since()
            acts += _applied(What.NODE_DEVICE, seen.name, seen.record, status, None)
        for namespace, held in sorted(seen.holdings.items()):
            if held.device is not None and namespace not in going:
                leaves = [assigned] if namespace != wanted else []
                status = self._common(held.device, [ready, *leaves, attached])
                acts += _applied(What.DEVICE, seen.name, held.device, status, namespace)
        return acts

    def _common(self, item: Object | None, wanted: Sequence[Condition]) -> Object:
        """The part of the status that both kinds have. Without the device: as it was last."""
        seen, stored = self._seen, (item or {}).get("status") or {}
        generation = ((item or {}).get("metadata") or {}).get("generation", 1)
        status: Object = {
            "observedGeneration": generation,
            "conditions": conditions.merged(stored.get("conditions") or (), wanted, seen.now),
        }
        if seen.device is not None:
            attributes: Mapping[str, Any] = status_attributes(seen.device)
            node = str(seen.device.node)
        else:
            attributes = self._status.get("attributes") or stored.get("attributes") or {}
            node = place_of(self._status) or place_of(stored)
        if attributes:
            status["attributes"] = dict(attributes)
        return status | place_fields(node)

    def _absent_since(self) -> str:
        return str(self._status.get("absentSince") or timestamp(self._seen.now))

    def _ended(self, acts: list[Act]) -> Decision:
        """Nobody has it and nobody shall: an absent device's object goes after a while."""
        seen = self._seen
        if seen.record is None or seen.device is not None or self._going:
            return Decision(tuple(acts))
        left = (
            datetime.fromisoformat(self._absent_since()) + seen.grace - seen.now
        ).total_seconds()
        if left > 0:
            return Decision(tuple(acts), again=left)
        meta = seen.record["metadata"]
        return Decision((Delete(What.NODE_DEVICE, seen.name, meta["uid"]),))


def _assigned(wanted: str, leaving: Progress, arriving: Progress) -> Condition:
    """Assigned, InProgress or Available."""
    if leaving.waits:
        return Condition("Assigned", False, "InProgress", leaving.waits)
    if arriving.waits:
        return Condition("Assigned", False, "InProgress", arriving.waits)
    if wanted:
        return Condition("Assigned", True, "Assigned", f"namespace {wanted} may use the device")
    return Condition("Assigned", False, "Available", "no namespace may use the device")


def _applied(
    what: What, name: str, item: Object | None, status: Object, namespace: str | None
) -> list[Act]:
    """The write of a status, if it differs from what is stored."""
    if item is not None and _same((item.get("status") or {}), status):
        return []
    metadata = {"name": name}
    if item is not None:
        metadata["uid"] = item["metadata"]["uid"]  # never into a later object of this name
    return [Apply(what, {"metadata": metadata, "status": status}, namespace, "status")]


def _same(stored: Mapping[str, Any], wanted: Object) -> bool:
    """Equal, whatever the order of conditions."""
    have = {c["type"]: c for c in stored.get("conditions") or ()}
    want = {c["type"]: c for c in wanted["conditions"]}
    rest = {key: value for key, value in stored.items() if key != "conditions"}
    return have == want and rest == {k: v for k, v in wanted.items() if k != "conditions"}
