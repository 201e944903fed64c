# SPDX-License-Identifier: Apache-2.0
"""Ends sessions of nodes that leave the cluster while they use a device of ours.

Owns who uses what; nodewatch.py knows who is there. An API server that does not answer ends
nothing. Refusing new requests is the guard's work (peers.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from usbdra.agent.nodewatch import NodeWatches, Seen
from usbdra.exporter.lease import Ports
from usbdra.kube.verbs import Lister
from usbdra.state.exports import Session
from usbdra.types import DeviceName, NodeName

log = logging.getLogger(__name__)


class RemovedNodes:
    """Told of sessions as exporter/lease.py's Ports, and tells `then` in its turn.

    `end` ends all sessions of a node; it is called once for each removal.
    """

    def __init__(
        self, api: Lister, end: Callable[[NodeName], Awaitable[None]], then: Ports
    ) -> None:
        self._end = end
        self._then = then
        self._users: dict[str, NodeName] = {}
        self._watches = NodeWatches(api, self._gone)
        self._endings: set[asyncio.Future[None]] = set()

    def taken(self, syspath: str, name: DeviceName, session: Session) -> None:
        """See Ports."""
        self._then.taken(syspath, name, session)
        self._forget(syspath)
        if session.node is not None:
            self._users[syspath] = session.node
            self._watches.hold(session.node)

    def left(self, syspath: str) -> None:
        """See Ports."""
        self._then.left(syspath)
        self._forget(syspath)

    def seen(self, node: NodeName) -> Seen | None:
        """See NodeWatches: a node that uses a device of ours, or did lately, as it is now."""
        return self._watches.seen(node)

    async def aclose(self) -> None:
        """End the watches; sessions go on."""
        await self._watches.aclose()

    def _forget(self, syspath: str) -> None:
        node = self._users.pop(syspath, None)
        if node is not None and node not in self._users.values():
            self._watches.release(node)

    def _gone(self, node: NodeName) -> None:
        """In a task of its own: no watch waits for the end of sessions."""
        if node not in self._users.values():
            return
        log.warning("node left the cluster: its sessions end", extra={"peer": node})
        task = asyncio.ensure_future(self._end(node))
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
