# SPDX-License-Identifier: Apache-2.0
"""To which namespaces this node's devices are assigned, as the API says now.

Owns the watch on the NodeUSBDevices of this node and the two fences made of them: taints on
slices, which keep other namespaces' claims from being allocated, and the check before a device
is given away. A device that the controller has not written down yet belongs to nobody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from usbdra.agent.options import AgentOptions
from usbdra.exporter import fence
from usbdra.kube.custom import Contract
from usbdra.kube.errors import ApiError
from usbdra.kube.watch import Change, Lister, Reflector
from usbdra.slices.assigned import assigned_to, device_name, taints
from usbdra.slices.build import Taint
from usbdra.types import DeviceName, NodeName

log = logging.getLogger(__name__)

FIRST_ANSWER_TIME = 10.0
"""Seconds that the first publication waits for the API."""


class Assignments:
    """Run it; until its first answer, when `known` is set, every device is unknown."""

    def __init__(self, api: Lister, names: Contract, node: NodeName, *, required: bool) -> None:
        self.known = asyncio.Event()
        self._names = names
        self._required = required
        self._assigned: dict[DeviceName, str] = {}
        self._reflector = Reflector(
            api,
            names.node_device,
            fields=f"status.nodeName={node}",
            on_error=_complain,
        )

    @classmethod
    def of_node(cls, options: AgentOptions, api: Lister) -> Assignments | None:
        """What knows which namespace may use which device of this node, where anybody says so."""
        if options.assignment == "Off":
            return None
        required = options.assignment == "Required"
        return cls(api, Contract(options.group), options.node, required=required)

    async def run(self, on_change: Callable[[], None]) -> None:
        """Follow the API until cancelled; `on_change` after each change of an assignment."""
        async for event in self._reflector.run():
            if isinstance(event, Change) and not self.known.is_set():
                continue  # the rest of the first list comes at once
            now = {device_name(item): assigned_to(item) for item in self._reflector.cache.values()}
            if now != self._assigned:
                self._assigned = now
                on_change()
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


def _complain(error: ApiError) -> None:
    log.warning("assignments are not known: %s", error)
