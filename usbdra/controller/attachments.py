# SPDX-License-Identifier: Apache-2.0
"""The part that gives devices to what runs: USBAttachments and the lists of virtual machines.

Owns the watches, the queue and the carrying out of decisions. Decides nothing: attach.py and
machines.py do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

from usbdra.controller import attach, machines
from usbdra.controller.acting import carry_out
from usbdra.controller.acts import Decision, What
from usbdra.controller.attachworld import AttachWorld, Item
from usbdra.controller.mirror import Mirror, follow, trimmed
from usbdra.controller.namedpods import NamedPods
from usbdra.controller.parts import Office
from usbdra.controller.queue import WorkQueue
from usbdra.kube.custom import MANAGED_BY, MANAGER
from usbdra.kube.errors import ApiNotFound
from usbdra.kube.types import CLAIM_TEMPLATE, POD, RESOURCE_CLAIM, Kind, Object
from usbdra.kube.watch import Key

log = logging.getLogger(__name__)


class AttachmentsPart:
    """See the module; one use."""

    def __init__(self, office: Office) -> None:
        options, settings = office.options, office.options.machines
        assert settings is not None
        contract = options.contract
        self._api = office.api
        image: Object = {"image": settings.image, "imagePullPolicy": settings.pull_policy}
        label = settings.label or contract.machine_key
        self._world = AttachWorld(contract, image, settings.socket, label)
        self._kinds: dict[What, Kind] = {
            What.ATTACHMENT: contract.attachment,
            What.DEVICE: contract.device,
            What.TEMPLATE: CLAIM_TEMPLATE,
            What.CLAIM: RESOURCE_CLAIM,
            What.POD: POD,
            What.MACHINE: contract.machine,
        }
        metering = office.metering
        self.queue = WorkQueue(
            self._reconcile,
            workers=options.workers,
            on_done=partial(metering.looked, "attachments"),
        )
        office.dump.add("attachments", self.queue.state)
        metering.follow_queue("attachments", lambda: (self.queue.depth, self.queue.failing))
        ours, held = f"{MANAGED_BY}={MANAGER}", contract.attachment_key
        self._mirrors = {
            What.ATTACHMENT: self._mirror(What.ATTACHMENT, "spec", "status"),
            What.DEVICE: self._mirror(What.DEVICE, "status"),
            What.TEMPLATE: self._mirror(What.TEMPLATE, "spec", labels=ours),
            What.CLAIM: self._mirror(What.CLAIM, "status", labels=held),
            What.POD: Mirror(self._api, POD, _pod, partial(self._put, What.POD), labels=held),
        }
        if settings.mirror:
            self._mirrors[What.MACHINE] = self._mirror(What.MACHINE, "spec", "status")
        pods = Mirror(self._api, POD, _pod, self._put_machine_pod, labels=label)
        self._named = NamedPods(self._api, self._put_named_pod, self._world.forget_named_pod)
        self._sources: Sequence[Mirror] = [*self._mirrors.values(), pods]

    async def run(self) -> None:
        """Follow the cluster; work starts when all of it has been seen once."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._named.run())
            group.create_task(follow(self._sources, self.queue.run))

    def _mirror(self, what: What, *parts: str, labels: str = "") -> Mirror:
        return Mirror(
            self._api,
            self._kinds[what],
            partial(_trim, what, parts),
            partial(self._put, what),
            labels=labels,
        )

    async def _reconcile(self, key: str) -> float | None:
        """Decide about one object and do it; what was written is looked at again."""
        decision = self._decide(key)
        for act in decision.acts:
            try:
                stored = await carry_out(self._api, self._kinds[act.what], act)
            except ApiNotFound:  # gone with its last finalizer, and the news is on its way
                return None
            if stored is not None:
                self._mirrors[act.what].absorb(stored)
        return decision.again

    def _decide(self, key: str) -> Decision:
        kind, namespace, name = key.split("/")
        if kind == What.MACHINE.value:
            machine = self._world.machine((namespace, name))
            return machines.decide(machine) if machine else Decision()
        seen = self._world.attachment((namespace, name), datetime.now(UTC))
        return attach.decide(seen) if seen else Decision()

    def _put(self, what: What, key: Key, item: Object | None) -> None:
        self._look_at(self._world.put(what, key, item))
        if what is What.ATTACHMENT:
            self._named.want(self._world.named_pods)

    def _put_machine_pod(self, key: Key, item: Object | None) -> None:
        self._look_at(self._world.put_machine_pod(key, item))

    def _put_named_pod(self, key: Key, item: Object | None) -> None:
        self._look_at(self._world.put_named_pod(key, item))

    def _look_at(self, items: set[Item]) -> None:
        for item in items:
            if item.what in self._mirrors:
                self.queue.add(f"{item.what.value}/{item.namespace}/{item.name}")


def _trim(what: What, parts: Sequence[str], item: Object) -> Object:
    """What decisions look at; an attachment's finalizers and age too."""
    small = trimmed(item, *parts)
    if what is What.ATTACHMENT:
        small["metadata"] |= {
            key: item["metadata"][key]
            for key in ("finalizers", "creationTimestamp")
            if key in item["metadata"]
        }
    return small


def _pod(item: Object) -> Object:
    """Where a pod is and how it is; the rest of a pod is large."""
    small = trimmed(item)
    small["metadata"]["creationTimestamp"] = item["metadata"].get("creationTimestamp", "")
    small["spec"] = {"nodeName": (item.get("spec") or {}).get("nodeName", "")}
    status = item.get("status") or {}
    conditions = [c for c in status.get("conditions") or () if c.get("type") == "PodScheduled"]
    small["status"] = {"phase": status.get("phase", ""), "conditions": conditions}
    return small
