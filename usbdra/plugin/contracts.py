# SPDX-License-Identifier: Apache-2.0
"""What the plugin needs of the rest of the agent, as small Protocols, and the facts they give.

Owns no behaviour. agent.py wires the real parts in; tests wire fakes. Every method may be
cancelled at any await and must then leave nothing half done that it does not report later.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from usbdra.plugin.config import Target
from usbdra.state.claims import ClaimRecord, ClaimRef, DeviceRecord, Held, Identity, Intent
from usbdra.types import DeviceName, Hub, NodeName, Speed


@dataclass(frozen=True, slots=True)
class UsbFact:
    """A published USB device. `reason` says why it is not exportable or not usable.

    Whose it is only the node that has it says, when it is asked for (exporter/fence.py).
    """

    name: DeviceName
    node: NodeName
    speed: Speed
    identity: Identity
    usable: bool = True
    exportable: bool = True
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DirectFact:
    """The published way to devices plugged into this node."""

    node: NodeName


@dataclass(frozen=True, slots=True)
class VhciFact:
    """A published port, or all ports, of one vhci hub of a node."""

    node: NodeName
    hub: Hub


Fact: TypeAlias = UsbFact | DirectFact | VhciFact


@dataclass(frozen=True, slots=True)
class Order:
    """One device to be taken for a claim.

    `hub` is where it must land, for remote devices; `identity` what it must prove to be, None
    when only its exporter knows. `host_drivers` False: no interface driver may stay bound.
    """

    claim: ClaimRef
    name: DeviceName
    node: NodeName
    hub: Hub | None
    identity: Identity | None
    host_drivers: bool


IntentHook: TypeAlias = Callable[[Intent], Awaitable[None]]
"""Awaited with port and devid right before each attach write; the write waits for it."""

DriversHook: TypeAlias = Callable[[Mapping[str, str]], Awaitable[None]]
"""Awaited with the interfaces and their drivers right before these are taken off."""


class DeviceView(Protocol):
    """What is published, and where devices are."""

    async def lookup(self, pool: str, device: str) -> Fact | None:
        """What this entry of this driver's slices stands for; None when it is not there."""

    async def find(self, target: Target) -> UsbFact | None:
        """The device that parameters name; None when nothing is known of it here."""

    def owner(self, pool: str) -> NodeName | None:
        """The node whose devices or ports a pool of this driver holds; None for another's pool."""


class Attacher(Protocol):
    """Takes devices for claims and gives them back. Raises UsbdraError."""

    def reaching(self, claim: ClaimRef, node: NodeName | None) -> AbstractContextManager[None]:
        """While it lasts, a link to the node is made ready for the claim's first device there.

        Nothing is asked over it before attach_remote is; None is no node. Raises nothing: a
        node that cannot be reached is attach_remote's error.
        """

    async def attach_remote(self, order: Order, intent: IntentHook) -> Held:
        """Bring a device of another node to a port here; returns when it is usable."""

    async def take_local(self, order: Order, drivers: DriversHook) -> Held:
        """Hold a device plugged into this node, so that nobody exports it meanwhile."""

    async def observe(self, order: Order) -> Held | None:
        """Where the device is now on this node, whoever has it; None when it is elsewhere."""

    async def intact(self, claim: ClaimRef, device: DeviceRecord) -> bool:
        """Whether `device.held` is still true: same port, same numbers, same identity."""

    async def release(self, claim: ClaimRef, device: DeviceRecord) -> None:
        """Give back what the record proves to be ours: `held`, a port taken as `intent` says,
        drivers kept off.

        Idempotent: nothing there is success. What is not provably ours is left alone.
        """


class Claims(Protocol):
    """ResourceClaims of the API server."""

    async def get(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """The claim as JSON, None when there is none (404). Raises UsbdraError otherwise."""


class Reporter(Protocol):
    """Tells people and the API what happened. Slow or failing reports never delay a claim."""

    async def prepared(self, record: ClaimRecord, devices: Sequence[Mapping[str, Any]]) -> None:
        """The claim is ready; `devices` is what `status.devices` should say for this driver."""

    async def released(self, ref: ClaimRef) -> None:
        """The claim has nothing any more; its `status.devices` of this driver go."""

    async def event(self, ref: ClaimRef, reason: str, message: str, warning: bool) -> None:
        """An Event on the claim and its pods; `reason` is one of the stable words of errors.py."""
