# SPDX-License-Identifier: Apache-2.0
"""Takes devices for claims and gives them back: the plugin's Attacher on the real parts.

Owns which local devices are held by claims of this node. Joins the dialler, the vhci ports, the
node's snapshot and the exporter's leases; decides nothing about claims and writes no record.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from usbdra.discovery.snapshot import Snapshot
from usbdra.discovery.tree import device_at
from usbdra.errors import (
    DeviceBusy,
    DriverNotRestored,
    HostInUse,
    IdentityChanged,
    NotFound,
    Refused,
)
from usbdra.exporter.fence import Allowed, no_fence
from usbdra.importer import drivers
from usbdra.importer.attach import Attacher as PortAttacher
from usbdra.importer.children import nodes_of, settle
from usbdra.plugin.contracts import DriversHook, IntentHook, Order
from usbdra.plugin.threads import in_thread
from usbdra.state.claims import (
    ClaimRef,
    DeviceNode,
    DeviceRecord,
    Held,
    Identity,
    Intent,
    Route,
)
from usbdra.types import (
    Attachment,
    BusId,
    ChildNode,
    ClaimUid,
    DeviceName,
    NodeName,
    Offer,
    PortId,
    PortState,
    RemoteDevice,
    UsbDevice,
)
from usbdra.vhci.driver import VhciDriver
from usbdra.vhci.table import find
from usbdra.vhci.waiting import EventSource, Waiter

log = logging.getLogger(__name__)


Timings = tuple[tuple[str, float], ...]
"""See Attachment.timings."""


@dataclass(frozen=True, slots=True)
class Connection:
    """A granted connection: the socket's next byte belongs to the kernel."""

    sock: socket.socket
    device: RemoteDevice
    timings: Timings


class Peers(Protocol):
    """The way to devices of other nodes (agent/peers.py)."""

    async def connect(self, order: Order) -> Connection:
        """Get the grant of an order's exporter. Raises UsbdraError."""
        ...

    def reaching(self, claim: ClaimUid, node: NodeName) -> AbstractContextManager[None]:
        """While it lasts, a link to the node is made ready for the claim's next `connect`."""
        ...


BeforeRelease = Callable[[ClaimUid], Awaitable[None]]
"""Ends what uses the claim's device beyond the claim's own pod; bounded, raises nothing."""


async def _nobody_else(claim: ClaimUid) -> None:
    """Only pods use devices."""


class Leases(Protocol):
    """What the exporter of this node has given away (exporter/local.py)."""

    async def reclaim(self, offer: Offer) -> bool:
        """Return with nobody having the device over the network, or raise DeviceBusy."""
        ...


class NodeDevices:
    """See contracts.Attacher. `detach_timeout` is in seconds."""

    def __init__(
        self,
        *,
        peers: Peers,
        attacher: PortAttacher,
        vhci: VhciDriver,
        events: EventSource,
        snapshot: Callable[[], Snapshot],
        leases: Leases,
        allowed: Allowed = no_fence,
        root: Path = Path("/"),
        detach_timeout: float = 10.0,
        host_drivers: drivers.DriverFiles = drivers.KERNEL,
        before_attach: Callable[[Order], None] = lambda order: None,
        before_release: BeforeRelease = _nobody_else,
        on_attached: Callable[[Timings], None] = lambda timings: None,
    ) -> None:
        self._on_attached = on_attached
        self._peers = peers
        self._attacher = attacher
        self._vhci = vhci
        self._events = events
        self._snapshot = snapshot
        self._leases = leases
        self._allowed = allowed
        self._root = root
        self._detach_timeout = detach_timeout
        self._host_drivers = host_drivers
        self._before_attach = before_attach
        self._before_release = before_release
        self._local: dict[DeviceName, ClaimRef] = {}

    def holder(self, name: DeviceName) -> ClaimRef | None:
        """The claim of this node that holds one of its own devices."""
        return self._local.get(name)

    def reaching(self, claim: ClaimRef, node: NodeName | None) -> AbstractContextManager[None]:
        """See contracts.Attacher."""
        return nullcontext() if node is None else self._peers.reaching(claim.uid, node)

    async def attach_remote(self, order: Order, intent: IntentHook) -> Held:
        """Bring a device of another node to a port here; returns when it is usable."""
        self._before_attach(order)
        connection = await self._peers.connect(order)
        try:
            _same_or_raise(order, _identity_of(connection.device))
        except BaseException:
            connection.sock.close()
            raise

        async def before(port: PortId) -> None:
            self._before_attach(order)  # again: another claim may have come first to this lock
            await intent(Intent(port, connection.device.devid))

        attachment = await self._attacher.attach(
            connection.sock,
            connection.device,
            timings=connection.timings,
            before=before,
        )
        self._on_attached(attachment.timings)
        log.info("device attached", extra=_facts(order, attachment))
        held = _held_on_port(attachment)
        if order.host_drivers:
            return held
        device = self._at(held.busid)
        if device is not None:  # what is off here goes with the link
            await self._keep_off(drivers.interface_drivers(device))
        return replace(held, children=())

    async def take_local(self, order: Order, drivers_off: DriversHook) -> Held:
        """Hold a device plugged into this node, so that nobody exports it meanwhile."""
        self._allowed(order.name, order.claim.namespace)
        async with Waiter(self._events) as waiter:
            if await self._leases.reclaim(self._offer(order.name)):
                syspath = self._offer(order.name).device.syspath
                await settle(self._root, syspath.removeprefix("/sys"), waiter)
        offer = self._offer(order.name)
        holder = self._local.get(order.name)
        if holder is not None and holder.uid != order.claim.uid:
            raise DeviceBusy(order.name, str(holder))
        if not offer.usable:
            raise Refused(f"device {order.name} is not offered: {offer.reason}")
        _same_or_raise(order, _identity(offer.device))
        held = self._held_locally(offer.device)
        self._local[order.name] = order.claim
        if order.host_drivers:
            return held
        now = self._at(offer.device.busid) or offer.device
        bound = drivers.interface_drivers(now)
        await drivers_off(bound)
        await self._keep_off(bound)
        return replace(held, children=())

    async def observe(self, order: Order) -> Held | None:
        """Where the device is now on this node; None when it is elsewhere."""
        try:
            return self._held_locally(self._offer(order.name).device)
        except (NotFound, IdentityChanged):
            return None

    async def intact(self, claim: ClaimRef, device: DeviceRecord) -> bool:
        """Whether what the record says is held is still there, the same, under the same numbers."""
        held = device.held
        if held is None:
            return False
        if device.route is Route.VHCI and not self._runs(held):
            return False
        found = self._at(held.busid)
        if found is None or not _identity(found).same(held.identity):
            return False
        if device.route is Route.DIRECT:
            if self._local.get(device.name, claim).uid != claim.uid:
                return False
            self._local[device.name] = claim
        return (found.busnum, found.devnum) == (held.busnum, held.devnum)

    async def release(self, claim: ClaimRef, device: DeviceRecord) -> None:
        """Give back what the record proves to be ours; nothing there is success."""
        if device.route is not Route.OBSERVE:
            await self._before_release(claim.uid)
        if device.route is Route.DIRECT:
            await self._drivers_back(device)
            holder = self._local.get(device.name)
            if holder is not None and holder.uid == claim.uid:
                del self._local[device.name]
            return
        if device.route is Route.OBSERVE:
            return
        proof = device.held.identity if device.held else device.identity
        for port, devid in _ports_of(device):
            if self._port_is_ours(port, devid) and self._same_device_on(port, proof):
                async with Waiter(self._events) as waiter:
                    await self._vhci.detach(port, waiter, timeout=self._detach_timeout)

    def _same_device_on(self, port: PortId, identity: Identity | None) -> bool:
        """False only when the device on the port proves to be another one."""
        placed = self._vhci.place(port)
        found = self._at(placed.busid) if placed else None
        return found is None or identity is None or _identity(found).same(identity)

    def _runs(self, held: Held) -> bool:
        """The port still has our link; one that is about to stop has none any more."""
        if held.port is None:
            return False
        row = find(self._vhci.table().ports, held.port)
        return row.state is PortState.USED and row.devid == held.devid

    def _port_is_ours(self, port: PortId | None, devid: int | None) -> bool:
        """A used port whose row shows the exporter's numbers that we recorded before the write.

        A row that is still attaching shows no numbers yet (vhci_sysfs.c `port_show_vhci`); the
        intent, written under the lock that all our processes share, is the proof then.
        """
        if port is None or devid is None:
            return False
        row = find(self._vhci.table().ports, port)
        return row.state is not PortState.FREE and row.devid in (devid, 0)

    def _offer(self, name: DeviceName) -> Offer:
        snapshot = self._snapshot()
        snapshot.require_face(name)
        for offer in snapshot.offers:
            if offer.name == name:
                return offer
        raise NotFound(f"device {name} is not plugged into this node any more")

    def _at(self, busid: BusId) -> UsbDevice | None:
        return device_at(self._root, busid)

    async def _keep_off(self, bound: Mapping[str, str]) -> None:
        await in_thread(drivers.keep_off, self._root, bound, self._host_drivers)

    async def _drivers_back(self, record: DeviceRecord) -> None:
        """Give the host what was kept off it, if the same device is still there.

        A driver that does not come back is told and stands in nobody's way: a pod could end only
        when somebody replugs the device.
        """
        busid = drivers.busid_of(record.drivers_off)
        device = self._at(busid) if busid is not None else None
        proof = record.held.identity if record.held else record.identity
        if device is None or not (proof is None or _identity(device).same(proof)):
            return
        try:
            await in_thread(drivers.give_back, self._root, record.drivers_off, self._host_drivers)
        except DriverNotRestored as error:
            log.error("%s, with its host again: %s", record.name, error)

    def _held_locally(self, device: UsbDevice) -> Held:
        held = _held(device, nodes_of(self._root, device.syspath))
        return replace(held, syspath=device.syspath)


def _held(device: UsbDevice, children: tuple[ChildNode, ...]) -> Held:
    """A device that is here as a claim holds it. Raises HostInUse while it has no node."""
    if device.major is None or device.minor is None:
        raise HostInUse(device.busid, "the kernel, which has made no device node for it")
    return Held(
        busid=device.busid,
        busnum=device.busnum,
        devnum=device.devnum,
        node=DeviceNode(device.node_path, device.major, device.minor),
        identity=_identity(device),
        children=children,
    )


def _held_on_port(attachment: Attachment) -> Held:
    held = _held(attachment.device, attachment.children)
    return replace(held, port=attachment.port, devid=attachment.remote.devid, link=attachment.link)


def _ports_of(device: DeviceRecord) -> set[tuple[PortId, int]]:
    """(port, devid) pairs that the record proves to be this claim's."""
    pairs = set()
    if device.held is not None and device.held.port is not None and device.held.devid is not None:
        pairs.add((device.held.port, device.held.devid))
    if device.intent is not None:
        pairs.add((device.intent.port, device.intent.devid))
    return pairs


def _identity(device: UsbDevice) -> Identity:
    return Identity(device.vendor_id, device.product_id, device.serial)


def _identity_of(remote: RemoteDevice) -> Identity:
    return Identity(remote.vendor_id, remote.product_id, remote.serial)


def _same_or_raise(order: Order, found: Identity) -> None:
    if order.identity is not None and not order.identity.same(found):
        wanted = f"{order.identity.vendor_id}:{order.identity.product_id}"
        raise IdentityChanged(
            f"device {order.name} of node {order.node} should be {wanted} and is now "
            f"{found.vendor_id}:{found.product_id}"
        )


def _facts(order: Order, attachment: Attachment) -> dict[str, object]:
    """For the log: what is where now, and the milliseconds that each phase took."""
    return {
        "claim": str(order.claim),
        "device": order.name,
        "node": order.node,
        "port": attachment.port,
        "link": str(attachment.link),
        "took_ms": {phase: round(s * 1e3, 1) for phase, s in attachment.timings},
        "unsettled": list(attachment.unsettled),
    }
