# SPDX-License-Identifier: Apache-2.0
"""A VirtualMachine's `spec.usbDevices` as USBAttachments, and what became of them. Pure.

Owns the attachments that a machine's list stands for: made, deleted, told of in
`status.usbDevices`. One entry that cannot be never hides another, and nothing here keeps a
machine from running. Attachments that people make for a machine themselves are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from usbdra.controller.acts import Act, Apply, Create, Decision, Delete, Object, What
from usbdra.kube.custom import MANAGED_BY, MANAGER, Contract
from usbdra.slices.limits import digest, shorten


@dataclass(frozen=True, slots=True)
class Observed:
    """A machine, its attachments, and the USBDevices of its namespace that it names."""

    contract: Contract
    machine: Object
    attachments: Sequence[Object]
    devices: Mapping[str, Object]


def attachment_name(machine: Mapping[str, Any], device: str) -> str:
    """The name of the USBAttachment that an entry of the list stands for."""
    meta = machine["metadata"]
    return f"{shorten(str(meta['name']), 40)}-{digest(str(meta['uid']), device)}"


def owns(machine: Mapping[str, Any], attachment: Mapping[str, Any]) -> bool:
    """The attachment was made for this very machine's list."""
    uid = machine["metadata"]["uid"]
    owners = attachment["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == uid for owner in owners)


def decide(seen: Observed) -> Decision:
    """The next writes; none when all is as it should be."""
    meta = seen.machine["metadata"]
    if meta.get("deletionTimestamp"):  # its attachments go with it, in order
        return Decision()
    listed = (seen.machine.get("spec") or {}).get("usbDevices") or ()
    wanted = list(dict.fromkeys(str(entry["name"]) for entry in listed))
    ours = {str(a["spec"]["device"]): a for a in seen.attachments if owns(seen.machine, a)}
    acts: list[Act] = [
        _gone(item) for device, item in sorted(ours.items()) if device not in wanted and _here(item)
    ]
    acts += [_made(seen, device) for device in wanted if device not in ours]
    shown = [_shown(device, ours.get(device), seen.devices.get(device)) for device in wanted]
    if ((seen.machine.get("status") or {}).get("usbDevices") or []) != shown:
        body = {
            "metadata": {"name": meta["name"], "uid": meta["uid"]},
            "status": {"usbDevices": shown},
        }
        acts.append(Apply(What.MACHINE, body, meta["namespace"], "status"))
    return Decision(tuple(acts))


def _made(seen: Observed, device: str) -> Act:
    kind, meta = seen.contract.machine, seen.machine["metadata"]
    owner: Object = {"apiVersion": kind.api_version, "kind": kind.kind}
    owner |= {"name": meta["name"], "uid": meta["uid"], "controller": True}
    body = {
        "metadata": {
            "name": attachment_name(seen.machine, device),
            "labels": {MANAGED_BY: MANAGER, seen.contract.device_key: device},
            "ownerReferences": [owner],
        },
        "spec": {"device": device, "virtualMachine": {"name": meta["name"]}},
    }
    return Create(What.ATTACHMENT, body, meta["namespace"])


def _gone(attachment: Object) -> Act:
    meta = attachment["metadata"]
    return Delete(What.ATTACHMENT, meta["name"], meta["uid"], meta["namespace"])


def _here(item: Mapping[str, Any]) -> bool:
    return not item["metadata"].get("deletionTimestamp")


def _shown(device: str, attachment: Object | None, found: Object | None) -> Object:
    """One entry of `status.usbDevices`.

    ready: the device is plugged into a node that is ready. attached: the machine has it. The
    fields are those that platforms with this kind have, and no others: the API would refuse them.
    """
    status = (attachment or {}).get("status") or {}
    conditions = status.get("conditions") or ()
    attached = next((c for c in conditions if c["type"] == "Attached"), None)
    entry: Object = {
        "name": device,
        "attached": bool(attached and attached["status"] == "True"),
        "ready": _is_ready(found),
        "hotplugged": bool(attached and attached["status"] == "True"),
    }
    if status.get("address"):
        entry["address"] = dict(status["address"])
    if conditions:
        entry["conditions"] = [dict(condition) for condition in conditions]
    return entry


def _is_ready(device: Object | None) -> bool:
    conditions = ((device or {}).get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
