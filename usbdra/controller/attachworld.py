# SPDX-License-Identifier: Apache-2.0
"""What the controller knows of attachments and machines, indexed. No I/O.

Owns the objects as last seen and the indexes over them. Each change answers with the keys of what
it may matter to: an attachment, or a machine whose list is mirrored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from usbdra.controller import attach, holder, machines, runs
from usbdra.controller.acts import Object, What
from usbdra.kube.custom import Contract

Key = tuple[str, str]
"""(namespace, name)."""


class Item(NamedTuple):
    """What is looked at: a USBAttachment or a VirtualMachine."""

    what: What
    namespace: str
    name: str


class AttachWorld:
    """See the module. Every `put...` with None stands for an object that went."""

    def __init__(self, contract: Contract, image: Object, socket: str, label: str) -> None:
        """label: the label of machines' pods with the machine's name."""
        self._contract = contract
        self._image = image
        self._socket = socket
        self._label = label
        self._objects: dict[What, dict[Key, Object]] = {what: {} for what in What}
        self._keys: dict[str, Key] = {}
        self._uid_of: dict[tuple[What, Key], str] = {}
        self._parts: dict[tuple[What, str], dict[Key, Object]] = {}
        self._by_device: dict[Key, set[Key]] = {}
        self._by_machine: dict[Key, set[Key]] = {}
        self._pods: dict[Key, dict[str, Object]] = {}
        self._machine_of: dict[Key, Key] = {}
        self._by_pod: dict[Key, set[Key]] = {}
        self._named: dict[Key, Object | None] = {}

    def put(self, what: What, key: Key, new: Object | None) -> set[Item]:
        """An attachment, machine, USBDevice or template; a claim or holder of an attachment."""
        if what in (What.CLAIM, What.POD):
            return self._put_part(what, key, new)
        old = self._objects[what].pop(key, None)
        if new is not None:
            self._objects[what][key] = new
        if what is What.ATTACHMENT:
            return self._put_attachment(key, old, new)
        if what is What.MACHINE:
            return {Item(What.MACHINE, *key)}
        return self._concerned(self._by_device.get(key, ()))

    def put_machine_pod(self, key: Key, new: Object | None) -> set[Item]:
        """A pod that a machine runs in."""
        before = self._machine_of.pop(key, None)
        if before is not None:
            self._pods[before].pop(key[1], None)
            if not self._pods[before]:
                del self._pods[before]
        found = {before} if before else set()
        name = ((new or {}).get("metadata", {}).get("labels") or {}).get(self._label)
        if new is not None and name:
            machine = (key[0], str(name))
            self._machine_of[key] = machine
            self._pods.setdefault(machine, {})[key[1]] = new
            found.add(machine)
        keys = {key for machine in found for key in self._by_machine.get(machine, ())}
        return {Item(What.ATTACHMENT, *key) for key in keys}

    @property
    def named_pods(self) -> set[Key]:
        """Pods that attachments name: the ones to be followed."""
        return set(self._by_pod)

    def put_named_pod(self, key: Key, new: Object | None) -> set[Item]:
        """A pod that attachments name, as it is now; None when it is known not to be there."""
        self._named[key] = new
        return {Item(What.ATTACHMENT, *name) for name in self._by_pod.get(key, ())}

    def forget_named_pod(self, key: Key) -> None:
        """The pod is not followed any more: what is known of it grows old."""
        self._named.pop(key, None)

    def attachment(self, key: Key, now: datetime) -> attach.Observed | None:
        """All that is known about one attachment; None when it is gone, or its pod is not known
        yet: nothing is decided before that, or a new controller would take devices out."""
        item = self._objects[What.ATTACHMENT].get(key)
        if item is None:
            return None
        consumer = _pod_of(key, item)
        if consumer is not None and consumer not in self._named:
            return None
        uid, spec = item["metadata"]["uid"], item["spec"]
        device = (key[0], str(spec["device"]))
        found = self._part(What.POD, uid)
        current = holder.target(found, self._contract) if found else ""
        machine = _machine(key, item)
        pods = list(self._pods.get(machine, {}).values()) if machine else []
        container = str((spec.get("pod") or {}).get("container") or "")
        named = self._named[consumer] if consumer is not None else None
        beside = self._by_machine.get(machine, ()) if machine else ()
        return attach.Observed(
            now=now,
            contract=self._contract,
            image=self._image,
            attachment=item,
            device=self._objects[What.DEVICE].get(device),
            template=self._objects[What.TEMPLATE].get(device),
            claim=self._part(What.CLAIM, uid),
            holder=found,
            place=(
                runs.place(pods, current, self._socket, self._contract)
                if consumer is None
                else runs.container_place(named, current, container)
            ),
            current=(
                runs.with_uid(pods, current, self._socket, self._contract)
                if consumer is None
                else runs.container_with_uid(named, current, container)
            ),
            wrong=runs.lacks(named, container),
            ahead_of_device=next(iter(self._ahead(item, self._by_device.get(device, ()))), ""),
            ahead_of_machine=len(self._ahead(item, beside)),
        )

    def machine(self, key: Key) -> machines.Observed | None:
        """All that is known about one machine; None when it is gone."""
        item = self._objects[What.MACHINE].get(key)
        if item is None:
            return None
        listed = (item.get("spec") or {}).get("usbDevices") or ()
        names = {str(entry["name"]) for entry in listed}
        devices = self._objects[What.DEVICE]
        attachments = self._objects[What.ATTACHMENT]
        return machines.Observed(
            contract=self._contract,
            machine=item,
            attachments=[attachments[k] for k in sorted(self._by_machine.get(key, ()))],
            devices={n: devices[key[0], n] for n in names if (key[0], n) in devices},
        )

    def _put_attachment(self, key: Key, old: Object | None, new: Object | None) -> set[Item]:
        concerned = {key}
        for item in (old, new):
            if item is None:
                continue
            for index, name in self._indexes(key, item):
                index.setdefault(name, set()).discard(key)
                if item is new:
                    index[name].add(key)
                concerned |= index[name]
                if not index[name]:
                    del index[name]
        if old is not None:
            self._keys.pop(old["metadata"]["uid"], None)
        if new is not None:
            self._keys[new["metadata"]["uid"]] = key
        items = self._concerned(concerned)
        named = {_machine(key, item) for item in (old, new) if item is not None}
        return items | {Item(What.MACHINE, *machine) for machine in named if machine}

    def _indexes(self, key: Key, item: Object) -> Iterable[tuple[dict[Key, set[Key]], Key]]:
        yield self._by_device, (key[0], str(item["spec"]["device"]))
        machine = _machine(key, item)
        if machine is not None:
            yield self._by_machine, machine
        consumer = _pod_of(key, item)
        if consumer is not None:
            yield self._by_pod, consumer

    def _put_part(self, what: What, key: Key, new: Object | None) -> set[Item]:
        """A claim or a holder, kept by the UID of its attachment.

        A claim that comes or goes changes who is first (`_order`), and so is news for all others
        that want the same device or are of the same machine.
        """
        found = set()
        before = self._uid_of.pop((what, key), None)
        if before is not None:
            parts = self._parts[what, before]
            del parts[key]
            if not parts:
                del self._parts[what, before]
            found.add(before)
        uid = ((new or {}).get("metadata", {}).get("labels") or {}).get(
            self._contract.attachment_key
        )
        if new is not None and uid:
            self._uid_of[what, key] = uid
            self._parts.setdefault((what, uid), {})[key] = new
            found.add(uid)
        keys = {self._keys[uid] for uid in found if uid in self._keys}
        if what is What.CLAIM and (before is None) != (new is None):
            keys |= {other for key in keys for other in self._beside(key)}
        return {Item(What.ATTACHMENT, *key) for key in keys}

    def _beside(self, key: Key) -> set[Key]:
        """This attachment, and those that share its device, machine or pod."""
        indexes = self._indexes(key, self._objects[What.ATTACHMENT][key])
        return {other for index, name in indexes for other in index[name]}

    def _part(self, what: What, uid: str) -> Object | None:
        return next(iter(self._parts.get((what, uid), {}).values()), None)

    def _concerned(self, keys: Iterable[Key]) -> set[Item]:
        """These attachments, and the machines whose lists show them."""
        found = set()
        for key in keys:
            found.add(Item(What.ATTACHMENT, *key))
            item = self._objects[What.ATTACHMENT].get(key)
            machine = _machine(key, item) if item else None
            if machine is not None:
                found.add(Item(What.MACHINE, *machine))
        return found

    def _ahead(self, item: Object, keys: Iterable[Key]) -> list[str]:
        """Names of the attachments among these that come before this one, the first one first."""
        others = (self._objects[What.ATTACHMENT].get(key) for key in keys)
        mine = self._order(item)
        ahead = sorted(o for other in others if other and (o := self._order(other)) < mine)
        return [name for _, _, name in ahead]

    def _order(self, item: Mapping[str, Any]) -> tuple[bool, str, str]:
        """Who has a claim is first, then the older one.

        The claim itself says so: the status tells of it only later, when another one may already
        have been taken for the first.
        """
        meta = item["metadata"]
        has = self._part(What.CLAIM, meta["uid"]) is not None
        return not has, str(meta.get("creationTimestamp", "")), str(meta["name"])


def _pod_of(key: Key, item: Mapping[str, Any]) -> Key | None:
    pod = item["spec"].get("pod")
    return (key[0], str(pod["name"])) if pod else None


def _machine(key: Key, item: Mapping[str, Any]) -> Key | None:
    machine = item["spec"].get("virtualMachine")
    return (key[0], str(machine["name"])) if machine else None
