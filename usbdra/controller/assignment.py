# SPDX-License-Identifier: Apache-2.0
"""A device in a namespace: what has to be there, and how it goes away in order. Pure.

Owns USBDevice, the shared claim and the template in one namespace. A claim in use is marked for
deletion, so that no further pod can take it, and goes when its pods have ended (the API's own
finalizer sees to that); the USBDevice goes last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from usbdra.controller import templates
from usbdra.controller.acts import Act, Apply, Delete, Object, What
from usbdra.controller.published import Published
from usbdra.controller.uses import Consumer, Use, consumers
from usbdra.kube.custom import MANAGED_BY, MANAGER, Contract


@dataclass(frozen=True, slots=True)
class Holding:
    """What one namespace has under the device's name."""

    device: Object | None = None
    claim: Object | None = None
    template: Object | None = None


BEING_MADE = "USBDevice, claim and template are being made"
"""One text for all steps: another would cost a write of the status for each."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What to do now; `waits` says what for, empty when all is as it should be."""

    acts: tuple[Act, ...] = ()
    waits: str = ""


def establish(
    name: str, namespace: str, held: Holding, device: Published | None, names: Contract
) -> Progress:
    """Make or mend USBDevice, claim and template.

    device: what is published now; None while the device is absent, and the claims stay as
    they are.
    """
    if held.device is None:
        body = {"metadata": {"name": name, "labels": {MANAGED_BY: MANAGER}}}
        return Progress((Apply(What.DEVICE, body, namespace),), BEING_MADE)
    if held.device["metadata"].get("deletionTimestamp"):
        return Progress((), f"USBDevice {namespace}/{name} is being deleted")
    if device is None:
        missing = held.claim is None or held.template is None
        return Progress((), "the claim is made when the device is back" if missing else "")
    spec = templates.claim_spec(device, namespace, names)
    owner = _owner(held.device, names)
    claim = _mend(
        What.CLAIM, held.claim, templates.claim(name, spec, owner, names), namespace, names
    )
    inner = templates.template(name, spec, owner, names)
    template = _mend(What.TEMPLATE, held.template, inner, namespace, names)
    return Progress(claim.acts + template.acts, claim.waits or template.waits)


def withdraw(
    name: str, namespace: str, held: Holding, used: Sequence[Use], names: Contract, *, force: bool
) -> Progress:
    """Take the device from the namespace. Done when there are no acts and nothing is waited for.

    used: uses by claims of this namespace. force: pods that use it are deleted, which ends
    their use in order, on the node too.
    """
    acts: list[Act] = []
    ours = [
        (what, item)
        for what, item in ((What.TEMPLATE, held.template), (What.CLAIM, held.claim))
        if item is not None and templates.is_ours(item, names)
    ]
    for what, item in ours:
        if not item["metadata"].get("deletionTimestamp"):
            acts.append(_delete(what, item, namespace))
    shared = next((item for what, item in ours if what is What.CLAIM), None)
    pods = _pods(shared, used)
    if force:
        acts += [Delete(What.POD, pod.name, pod.uid, namespace) for pod in pods]
    waits = f"namespace {namespace} is giving it back"
    if pods:
        waits = f"pods of namespace {namespace} still use it: {', '.join(p.name for p in pods)}"
    if pods or ours or used:
        return Progress(tuple(acts), waits)
    if held.device is not None:
        if not held.device["metadata"].get("deletionTimestamp"):
            acts.append(_delete(What.DEVICE, held.device, namespace))
        return Progress(tuple(acts), waits)
    return Progress()


def _mend(
    what: What, stored: Object | None, wanted: Object, namespace: str, names: Contract
) -> Progress:
    name = wanted["metadata"]["name"]
    if stored is None:
        apply = Apply(what, wanted, namespace, force=False)
        return Progress((apply,), BEING_MADE)
    if not templates.is_ours(stored, names):
        return Progress(
            (), f"{what.value} {namespace}/{name} is somebody else's; rename it or delete it"
        )
    pods = ", ".join(pod.name for pod in consumers(stored))
    if stored["metadata"].get("deletionTimestamp"):
        return Progress((), f"{what.value} {name} is going (pods: {pods or 'none'})")
    spec = wanted["spec"]["spec"] if what is What.TEMPLATE else wanted["spec"]
    owner = wanted["metadata"]["ownerReferences"][0]["uid"]
    if templates.is_current(stored, spec, owner, names):
        return Progress()
    if pods:
        return Progress(
            (), f"{what.value} {name} is for where the device was before, and pods use it: {pods}"
        )
    return Progress((_delete(what, stored, namespace),), f"{what.value} {name} is made anew")


def _pods(claim: Object | None, used: Sequence[Use]) -> list[Consumer]:
    found = {pod for use in used for pod in use.consumers}
    return sorted(found | set(consumers(claim or {})))


def _owner(device: Object, names: Contract) -> Object:
    kind, meta = names.device, device["metadata"]
    head = {"apiVersion": kind.api_version, "kind": kind.kind}
    return {**head, "name": meta["name"], "uid": meta["uid"]}


def _delete(what: What, item: Object, namespace: str) -> Delete:
    return Delete(what, item["metadata"]["name"], item["metadata"]["uid"], namespace)
