# SPDX-License-Identifier: Apache-2.0
"""What the listener asks of whoever owns the devices: the Broker contract.

Owns the contract and its values. Must not bind devices or touch sockets: `exporter/local.py`
does so on a host of its own, and an agent behind a Unix socket does so in a cluster, where the
listener has no privilege.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from usbdra.types import NodeName, RemoteDevice
from usbdra.usbip.extension import ClaimRef, GrantRequest, Timings

__all__ = ["Broker", "ClaimRef", "GrantRequest", "Granted", "Peer"]


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end. `node` is the name its certificate proves, None on a plain link;
    `node_uid` the Node object it was made for ("" where it says nothing of one), `encrypted` says
    whether the kernel encrypts the link's data; `uris` are the certificate's further names."""

    address: str
    port: int
    node: NodeName | None = None
    encrypted: bool = False
    node_uid: str = ""
    uris: tuple[str, ...] = ()

    @property
    def authenticated(self) -> bool:
        """True when the peer proved its name over TLS."""
        return self.node is not None

    def __str__(self) -> str:
        where = f"[{self.address}]" if ":" in self.address else self.address
        return f"{self.node or 'unauthenticated'} at {where}:{self.port}"


@dataclass(frozen=True, slots=True)
class Granted:
    """A device that is bound and reserved for one session.

    `session` is the broker's own key for it, never reused. `timings` holds (phase, seconds) of
    `authorise` and `bind`; the listener adds `hand_over`.
    """

    session: str
    device: RemoteDevice
    timings: Timings = ()


class Broker(Protocol):
    """Owner of the node's devices. All methods may be called concurrently from one loop."""

    async def inventory(self, peer: Peer) -> Sequence[RemoteDevice]:
        """The devices this peer may know of, those in use included (`available` False)."""

    async def acquire(self, request: GrantRequest, peer: Peer, sock: socket.socket) -> Granted:
        """Authorise, reserve and bind. Nothing is left behind when it raises or is cancelled.

        `sock` is the connection that the device is for, borrowed: a broker that trusts the
        listener with less than all sees there who is at the other end. `request.device` is a
        stable name or a bus id, well formed and nothing more is known of it. Raises UsbdraError:
        NotFound, Refused, DeviceBusy (names the holder), HostInUse, ExportFailed.
        """

    async def hand_over(self, granted: Granted, sock: socket.socket) -> None:
        """Give the kernel the connected socket. Borrows sock: the caller closes it, so whoever
        keeps it longer makes a copy. Raises UsbdraError, with the device back at its host."""

    async def abandon(self, granted: Granted) -> None:
        """End the session and release the device, whether it was handed over or not.

        Idempotent, never raises for a session that is already over.
        """
