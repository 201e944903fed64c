# SPDX-License-Identifier: Apache-2.0
"""Ends sessions of nodes that leave the cluster while they use a device of ours.

Owns a watch of one Node object for each node that has a device of ours now, and no other: in a
large cluster somebody's status changes every moment, and is nobody's business here. An API
server that does not answer ends nothing. Refusing new requests is the guard's work (peers.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from usbdra.exporter.lease import Ports
from usbdra.kube.types import NODE, Object
from usbdra.kube.watch import Lister, Reflector
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
        self._api = api
        self._end = end
        self._then = then
        self._users: dict[str, NodeName] = {}
        self._watches: dict[NodeName, asyncio.Task[None]] = {}
        self._endings: set[asyncio.Future[None]] = set()

    def taken(self, syspath: str, name: DeviceName, session: Session) -> None:
        """See Ports."""
        self._then.taken(syspath, name, session)
        if session.node is not None:
            self._users[syspath] = session.node
            if session.node not in self._watches:
                task = asyncio.create_task(self._watch(session.node))
                self._watches[session.node] = task

    def left(self, syspath: str) -> None:
        """See Ports."""
        self._then.left(syspath)
        node = self._users.pop(syspath, None)
        if node is not None and node not in self._users.values() and node in self._watches:
            self._watches.pop(node).cancel()

    async def aclose(self) -> None:
        """End the watches; sessions go on."""
        watches = list(self._watches.values())
        self._watches.clear()
        for task in watches:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _watch(self, node: NodeName) -> None:
        nodes = Reflector(self._api, NODE, fields=f"metadata.name={node}", on_error=_complain)
        first = ""
        async for _ in nodes.run():
            uid = _uid(nodes.cache.get(("", node)))
            first = first or uid
            if not uid or uid != first:
                log.warning("node left the cluster: its sessions end", extra={"peer": node})
                first = uid
                self._start_ending(node)

    def _start_ending(self, node: NodeName) -> None:
        """In a task of its own: the end of a node's last session cancels its watch."""
        task = asyncio.ensure_future(self._end(node))
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)


def _uid(node: Object | None) -> str:
    return str(node["metadata"]["uid"]) if node else ""


def _complain(error: Exception) -> None:
    log.warning("a node that uses a device of ours is not watched: %s", error)
