# SPDX-License-Identifier: Apache-2.0
"""To which namespaces this node's devices are assigned, as the API says now.

Owns the two fences made of this node's NodeUSBDevices: taints on slices, which keep other
namespaces' claims from being allocated, and the check before a device is given away. A device that
the controller has not written down yet belongs to nobody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from usbdra.agent.nodeobjects import NodeObjects
from usbdra.agent.options import AgentOptions
from usbdra.exporter import fence
from usbdra.kube.custom import Contract
from usbdra.kube.watch import Change, Synced
from usbdra.slices.assigned import assigned_to, device_name, taints
from usbdra.slices.build import Taint
from usbdra.types import DeviceName

log = logging.getLogger(__name__)

FIRST_ANSWER_TIME = 10.0
"""Seconds that the first publication waits for the API."""


class Assignments:
    """Until the first answer, when `known` is set, every device is unknown. `on_change` is called
    after each change of an assignment."""

    def __init__(self, objects: NodeObjects, names: Contract, *, required: bool) -> None:
        self.known = asyncio.Event()
        self.on_change: Callable[[], None] = lambda: None
        self._objects = objects
        self._names = names
        self._required = required
        self._assigned: dict[DeviceName, str] = {}
        objects.listen(self._hear)

    @classmethod
    def of_node(cls, options: AgentOptions, objects: NodeObjects) -> Assignments | None:
        """What knows which namespace may use which device of this node, where anybody says so."""
        if options.assignment == "Off":
            return None
        required = options.assignment == "Required"
        return cls(objects, Contract(options.group), required=required)

    def _hear(self, event: Change | Synced) -> None:
        if isinstance(event, Change) and not self.known.is_set():
            return  # the rest of the first list comes at once
        now = {device_name(item): assigned_to(item) for item in self._objects.all()}
        if now != self._assigned:
            self._assigned = now
            self.on_change()
        self.known.set()

    async def first_answer(self) -> None:
        """Wait a little for it, so that a restart does not taint what is only not read yet."""
        try:
            await asyncio.wait_for(self.known.wait(), FIRST_ANSWER_TIME)
        except TimeoutError:
            log.warning("devices are published as nobody's: assignments are not known yet")

    def namespace(self, device: DeviceName) -> str | None:
        """The namespace of a device of this node, "" for none, None for not known."""
        return self._assigned.get(device)

    def require(self, device: DeviceName, namespace: str) -> None:
        """See exporter/fence.py."""
        fence.require(device, namespace, self.namespace(device), required=self._required)

    def taints(self, devices: Iterable[DeviceName]) -> Mapping[DeviceName, Sequence[Taint]]:
        """What to publish with these devices."""
        return {
            device: found
            for device in devices
            if (found := taints(self._names, self.namespace(device), required=self._required))
        }
