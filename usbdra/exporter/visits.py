# SPDX-License-Identifier: Apache-2.0
"""What a host outside a cluster does when the cluster's controller asks it for its devices.

Owns the order: sessions that the controller says are over are ended, certificates taken in, a reset
carried out, news waited for when it asks for that, then it is told what runs. From anybody else
nothing is taken, and nobody else is told or waited with.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from usbdra.exporter.broker import Peer
from usbdra.exporter.editions import Editions
from usbdra.exporter.renewal import HostRenewal
from usbdra.state.exports import Session
from usbdra.types import CONTROLLER, DeviceName
from usbdra.usbip.errands import Reset, ResetAnswer
from usbdra.usbip.extension import HeldSession, Inventory, InventoryRequest

Resets = Callable[[Peer, Reset], Awaitable[ResetAnswer]]
"""Carries a reset out, see exporter/hostresets.py."""


class Sessions(Protocol):
    """The part of exporter/local.py that visits need."""

    def sessions(self) -> list[tuple[DeviceName, Session]]:
        """The sessions that run, each with its device."""

    async def end(self, key: str) -> None:
        """End a session; one that is over is none."""


class Visits:
    """See exporter/conversation.py's Visited."""

    def __init__(
        self, renewal: HostRenewal, sessions: Sessions, editions: Editions, resets: Resets
    ) -> None:
        self._renewal = renewal
        self._resets = resets
        self._sessions = sessions
        self._editions = editions

    async def __call__(self, peer: Peer, request: InventoryRequest) -> Inventory:
        """Take what is brought; what the controller is told."""
        if peer.node != CONTROLLER:
            return Inventory()
        for key in request.over:
            await self._sessions.end(key)
        asked = await self._renewal(peer, request)
        answer = await self._resets(peer, request.reset) if request.reset else None
        if not asked and answer is None:
            await self._editions.after(request.seen, request.wait)
        # Before anything is read: what changes meanwhile is in the next edition.
        edition = self._editions.now
        held = (
            HeldSession(session.key, name, session.claim, session.node)
            for name, session in self._sessions.sessions()
            if session.claim is not None and session.node is not None
        )
        return Inventory(request=asked, sessions=tuple(held), edition=edition, reset=answer)
