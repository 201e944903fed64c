# SPDX-License-Identifier: Apache-2.0
"""The NodeUSBDevices of this node, by one watch for all of the agent that ask.

Owns the watch. What an object says is for who listens: assignments.py, resets.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from usbdra.kube.custom import Contract
from usbdra.kube.errors import ApiError
from usbdra.kube.types import Object
from usbdra.kube.verbs import Lister
from usbdra.kube.watch import Change, Reflector, Synced
from usbdra.types import NodeName

log = logging.getLogger(__name__)

Hear = Callable[[Change | Synced], None]


class NodeObjects:
    """Run it once everybody listens."""

    def __init__(self, api: Lister, names: Contract, node: NodeName) -> None:
        self._listeners: list[Hear] = []
        self._reflector = Reflector(
            api, names.node_device, fields=f"status.nodeName={node}", on_error=_complain
        )

    def listen(self, hear: Hear) -> None:
        """Call this at every change, and when a list is complete."""
        self._listeners.append(hear)

    def all(self) -> Iterable[Object]:
        """As the API has them now."""
        return self._reflector.cache.values()

    async def run(self) -> None:
        """Follow the API until cancelled."""
        async for event in self._reflector.run():
            for hear in self._listeners:
                hear(event)


def _complain(error: ApiError) -> None:
    log.warning("assignments and requests for resets are not seen: %s", error)
