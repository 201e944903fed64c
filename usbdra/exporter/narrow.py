# SPDX-License-Identifier: Apache-2.0
"""A Broker that shows and gives only some of another Broker's devices (`serve --device`)."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from usbdra.errors import NotFound
from usbdra.exporter.broker import Broker, Granted, GrantRequest, Peer
from usbdra.types import RemoteDevice


class OnlyThese:
    """See Broker. `names` are stable names; all other devices read as if they were not there."""

    def __init__(self, broker: Broker, names: frozenset[str]) -> None:
        self._broker = broker
        self._names = names

    async def inventory(self, peer: Peer) -> Sequence[RemoteDevice]:
        """The devices among ours."""
        return [one for one in await self._broker.inventory(peer) if one.name in self._names]

    async def acquire(self, request: GrantRequest, peer: Peer, sock: socket.socket) -> Granted:
        """The device, if it is among ours."""
        for device in await self.inventory(peer):
            if request.device in (device.name, device.busid):
                return await self._broker.acquire(request, peer, sock)
        raise NotFound(f"no device {request.device!r} is exported here")

    async def hand_over(self, granted: Granted, sock: socket.socket) -> None:
        """As the broker behind does."""
        await self._broker.hand_over(granted, sock)

    async def abandon(self, granted: Granted) -> None:
        """As the broker behind does."""
        await self._broker.abandon(granted)
