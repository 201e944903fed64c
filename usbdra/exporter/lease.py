# SPDX-License-Identifier: Apache-2.0
"""What a lease is, and what the broker asks of those who know more: as values and contracts.

Owns the shapes. Must not act; exporter/local.py does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

from usbdra.exporter.broker import GrantRequest, Peer
from usbdra.state.exports import Session
from usbdra.transport.ending import LinkEnd
from usbdra.types import DeviceName, Offer, RemoteDevice

Authorise = Callable[[Offer, GrantRequest, Peer], Awaitable[None]]
"""Raises UsbdraError when this peer may not have this device."""

Outlived = Callable[[DeviceName, Session], Awaitable[bool]]
"""Whether the claim of a session entitles its node to the device no more, beyond doubt."""

HeldHere = Callable[[DeviceName], object | None]
"""Who on this node itself has a device, in words; None when nobody."""


class Ports(Protocol):
    """Who wants to know which of this node's ports are in use abroad."""

    def taken(self, syspath: str, name: DeviceName, session: Session) -> None:
        """The device of this port is in use from now on, under this name."""
        ...

    def left(self, syspath: str) -> None:
        """Its session is over."""
        ...


@dataclass(eq=False, slots=True)
class Lease:
    """One holder of one device, from the moment it was reserved to the device's release.

    `end` watches the connection once it is the kernel's; a lease taken over from an earlier run
    of this program (`adopted`) has none, there `link_ended` tells. `over`: the connection is known
    to have ended. `closing` is the one task that ends the lease, however many ask for it.
    """

    session: Session
    device: RemoteDevice
    syspath: str
    pinned: bool = False
    end: LinkEnd | None = None
    adopted: bool = False
    over: bool = False
    follower: asyncio.Task[None] | None = None
    closing: asyncio.Task[None] | None = None


def remote_of(offer: Offer) -> RemoteDevice:
    """An offered device as the wire describes it."""
    device = offer.device
    return RemoteDevice(
        busid=device.busid,
        busnum=device.busnum,
        devnum=device.devnum,
        speed_code=device.speed.code,
        vendor_id=device.vendor_id,
        product_id=device.product_id,
        bcd=device.bcd,
        class_code=device.class_code,
        subclass=device.subclass,
        protocol=device.protocol,
        configuration=device.configuration or 0,
        interfaces=tuple((i.class_code, i.subclass, i.protocol) for i in device.interfaces),
        name=offer.name,
        serial=device.serial,
        product=device.product,
        manufacturer=device.manufacturer,
    )


def unavailable(device: RemoteDevice, reason: str) -> RemoteDevice:
    """The same device as one that cannot be had now, and why."""
    return replace(device, available=False, reason=reason)


def holder_of(request: GrantRequest, peer: Peer) -> str:
    """Who asks, in words for others."""
    if request.claim is not None:
        return f"claim {request.claim} of {peer}"
    return f"{request.holder} of {peer}" if request.holder else str(peer)
