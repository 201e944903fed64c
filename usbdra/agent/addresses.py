# SPDX-License-Identifier: Apache-2.0
"""The cluster's nodes as peers: addresses and UIDs, as the API server knows them.

What is watched (nodewatch.py) costs nothing, so that an attach costs one read of the API: the
claim's, which must be live. Owns a small memory of the others. Must not be asked by names that
nobody vouches for without a limit: the desk has one; and such names are not watched.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from usbdra.agent.nodewatch import Seen
from usbdra.errors import Refused
from usbdra.kube.addresses import internal_addresses
from usbdra.kube.reading import read
from usbdra.kube.types import NODE, Object
from usbdra.kube.verbs import Gets
from usbdra.types import NodeName

SECONDS = 30.0
"""How long an answer is good: a node that changes its address is refused for so long."""
_MAX_NODES = 1024

Watched = Callable[[NodeName], Seen | None]
"""A node by its watch; None when it has none that can be believed."""

Facts = tuple[str, frozenset[str]]
"""(UID, InternalIPs)."""


def nothing_watched(node: NodeName) -> Seen | None:
    """For who has no watches."""


class NodeAddresses:
    """InternalIPs by node name: between them go the links."""

    def __init__(self, api: Gets, watched: Watched = nothing_watched) -> None:
        self._api = api
        self._watched = watched
        self._known: OrderedDict[NodeName, tuple[float, Facts]] = OrderedDict()

    async def __call__(self, node: NodeName) -> frozenset[str]:
        """The node's InternalIPs. Raises Refused for a node that is not there, ApiError."""
        return (await self._facts(node))[1]

    async def require_same(self, node: NodeName, uid: str) -> None:
        """Return when the Node of this name has this UID; "" asks for none.

        Raises Refused: the certificate was made for an earlier machine of this name; ApiError.
        """
        if uid and uid != (await self._facts(node))[0]:
            raise Refused(f"the certificate is of an earlier node named {node}")

    async def _facts(self, node: NodeName) -> Facts:
        """Raises Refused for a node that is not there, ApiError."""
        seen = self._watched(node)
        if seen is not None:
            return _facts_of(node, seen.node)
        now = asyncio.get_running_loop().time()
        until, facts = self._known.get(node, (now, ("", frozenset())))
        if now < until:
            return facts
        facts = _facts_of(node, await read(self._api, NODE, node))
        self._known[node] = (now + SECONDS, facts)
        self._known.move_to_end(node)
        if len(self._known) > _MAX_NODES:
            self._known.popitem(last=False)
        return facts


def _facts_of(node: NodeName, found: Object | None) -> Facts:
    """Raises Refused for a node that is not there."""
    if found is None:
        raise Refused(f"node {node} is not in the cluster")
    return str(found["metadata"]["uid"]), frozenset(internal_addresses(found))
