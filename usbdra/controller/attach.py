# SPDX-License-Identifier: Apache-2.0
"""One USBAttachment: from everything that is observed of it to what has to be written. Pure.

Owns the life of an attachment. Order is its whole point: finalizer, claim, holder on the way in;
holder (whose end unplugs the device, agent/plugs.py), claim, finalizer on the way out. A machine
that is somewhere else now is way out, then way in: a device never has two sessions. Steps may be
the last before a crash; the next decision goes on from what the API holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from usbdra.controller import attachstatus, holder
from usbdra.controller.acts import Act, Apply, Create, Decision, Delete, Object, Patch, What
from usbdra.controller.attachstatus import Refusal, Shown
from usbdra.controller.holder import Place
from usbdra.controller.uses import uses
from usbdra.kube.custom import Contract

MAX_DEVICES = 8
"""Devices of one virtual machine."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything known of one USBAttachment at one moment."""

    now: datetime
    contract: Contract
    image: Object
    """What the holder's container runs, see holder.pod."""
    attachment: Object
    device: Object | None = None
    """The USBDevice of the attachment's namespace."""
    template: Object | None = None
    """The device's ResourceClaimTemplate: there as long as the namespace may use the device."""
    claim: Object | None = None
    holder: Object | None = None
    place: Place | None = None
    """Where the machine runs now; None while it does not."""
    current: Place | None = None
    """The pod of the machine that the holder was made for, while it is there."""
    ahead_of_device: str = ""
    """The attachment that has the same device before this one."""
    ahead_of_machine: int = 0
    """How many attachments of the same machine come before this one."""
    wrong: str = ""
    """What is wrong with the pod or container that the attachment names."""


def decide(seen: Observed) -> Decision:
    """The next step; no acts when all is as it should be."""
    meta = seen.attachment["metadata"]
    going = bool(meta.get("deletionTimestamp"))
    refusal = None if going else _refusal(seen)
    wanted = seen.place if not going and (refusal is None or _keeps(seen, refusal)) else None
    acts, waits = _steps(seen, wanted)
    done = going and not acts and seen.holder is None and seen.claim is None
    if done:
        return Decision(tuple(_finalizer(seen, wanted=False)))
    if not going or seen.holder is not None or seen.claim is not None:
        acts = [*acts, *_status(seen, refusal, waits)]
    return Decision(tuple(acts))


def _refusal(seen: Observed) -> Refusal | None:
    """Why this attachment cannot be, whatever runs where."""
    spec, namespace = seen.attachment["spec"], seen.attachment["metadata"]["namespace"]
    device = spec["device"]
    if seen.wrong:
        return Refusal("NotFound", seen.wrong)
    if seen.device is None:
        return Refusal(
            "NotFound",
            f"namespace {namespace} has no USBDevice {device}; an administrator assigns it",
        )
    if seen.template is None or seen.template["metadata"].get("deletionTimestamp"):
        return Refusal("Withdrawn", f"namespace {namespace} may not use device {device} any more")
    if seen.ahead_of_device:
        return Refusal("InUse", f"USBAttachment {seen.ahead_of_device} has the device")
    if seen.ahead_of_machine >= MAX_DEVICES:
        machine = spec["virtualMachine"]["name"]
        return Refusal("TooManyDevices", f"virtual machine {machine} has {MAX_DEVICES} devices")
    return None


def _consumer(spec: Mapping[str, Any]) -> str:
    if "virtualMachine" in spec:
        return f"virtual machine {spec['virtualMachine']['name']}"
    return f"pod {spec['pod']['name']}"


def _keeps(seen: Observed, refusal: Refusal) -> bool:
    """Withdrawn under a running machine: as pods do, it keeps the device until it gives it back,
    or until its holder is deleted by force.
    """
    if refusal.reason != "Withdrawn" or seen.claim is None or seen.holder is None:
        return False
    return not seen.holder["metadata"].get("deletionTimestamp")


def _steps(seen: Observed, wanted: Place | None) -> tuple[list[Act], str]:
    """What to do now, and what is waited for."""
    namespace = seen.attachment["metadata"]["namespace"]
    if seen.holder is not None:
        return _of_holder(seen, seen.holder, wanted, namespace)
    if seen.claim is not None and not _claim_fits(seen, seen.claim, wanted):
        waits = f"claim {seen.claim['metadata']['name']} is going"
        return _deleted(What.CLAIM, seen.claim, namespace), waits
    if wanted is None:
        return [], ""
    assert seen.template is not None  # else it is refused: nothing is held
    acts = _finalizer(seen, wanted=True)
    if acts:  # on record before there is anything to detach
        return acts, "it is being made ready"
    if seen.claim is None:
        body = holder.claim(seen.attachment, seen.template, seen.contract)
        return [Create(What.CLAIM, body, namespace)], "its claim is being made"
    claim = seen.claim["metadata"]["name"]
    body = holder.pod(seen.attachment, claim, wanted, seen.image, seen.contract)
    return [Create(What.POD, body, namespace)], "its pod is being made"


def _of_holder(
    seen: Observed, found: Object, wanted: Place | None, namespace: str
) -> tuple[list[Act], str]:
    """A holder stays while it is where it should be and works; else it goes first."""
    name = found["metadata"]["name"]
    ended = (found.get("status") or {}).get("phase") in ("Failed", "Succeeded")
    fits = seen.claim is not None and _claim_fits(seen, seen.claim, wanted)
    if wanted is not None and fits and not ended and _is_for(seen, found, wanted):
        if found["metadata"].get("deletionTimestamp"):
            return [], f"pod {name} is ending and is made again"
        return [], ""
    where = f" on node {holder.node(found)}" if holder.node(found) else ""
    waits = f"pod {name}{where} is giving the device back"
    return _deleted(What.POD, found, namespace), waits


def _is_for(seen: Observed, found: Object, wanted: Place) -> bool:
    return holder.target(found, seen.contract) == wanted.uid


def _claim_fits(seen: Observed, claim: Object, wanted: Place | None) -> bool:
    """It is to stay: wanted, and for where the device is now."""
    if wanted is None or claim["metadata"].get("deletionTimestamp"):
        return False
    return seen.template is None or holder.is_current(claim, seen.template, seen.contract)


def _deleted(what: What, item: Object, namespace: str) -> list[Act]:
    meta = item["metadata"]
    if meta.get("deletionTimestamp"):
        return []
    return [Delete(what, meta["name"], meta["uid"], namespace)]


def _finalizer(seen: Observed, *, wanted: bool) -> list[Act]:
    """Put our finalizer on the attachment, or take it off. Others' stay."""
    meta, ours = seen.attachment["metadata"], seen.contract.key("detach")
    there: Sequence[str] = meta.get("finalizers") or ()
    if (ours in there) == wanted:
        return []
    finalizers = [*there, ours] if wanted else [name for name in there if name != ours]
    patch = {
        "metadata": {"resourceVersion": meta["resourceVersion"], "finalizers": finalizers},
    }
    return [Patch(What.ATTACHMENT, meta["name"], patch, meta["namespace"])]


def _status(seen: Observed, refusal: Refusal | None, waits: str) -> list[Act]:
    """The write of the status, if it differs from what is stored."""
    meta = seen.attachment["metadata"]
    stored: Mapping[str, Any] = seen.attachment.get("status") or {}
    found = uses(seen.claim, seen.contract.driver) if seen.claim else ()
    shown = Shown(
        going=bool(meta.get("deletionTimestamp")),
        refusal=refusal,
        waits=waits,
        consumer=_consumer(seen.attachment["spec"]),
        running=seen.place is not None,
        place=seen.current,
        holder=seen.holder,
        claim=seen.claim,
        use=found[0] if found else None,
        plug=stored.get("plug") or {},
    )
    wanted = attachstatus.status(shown, stored, int(meta.get("generation", 1)), seen.now)
    if attachstatus.same(stored, wanted):
        return []
    body = {"metadata": {"name": meta["name"], "uid": meta["uid"]}, "status": wanted}
    return [Apply(What.ATTACHMENT, body, meta["namespace"], "status")]
