# SPDX-License-Identifier: Apache-2.0
"""Both sides of a claim's link between two agents: asking for a device, and who may have ours.

Owns the address of a node and the live read of a claim. The decision itself is
exporter/rightful.py's; the protocol is importer/dial.py's and exporter/server.py's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Protocol

from usbdra.agent.devices import Connection
from usbdra.agent.knocking import Knocker, Scouts
from usbdra.errors import DeviceBusy, LinkError, NotFound, Refused, UsbdraError
from usbdra.exporter import rightful
from usbdra.exporter.broker import GrantRequest, Peer
from usbdra.exporter.fence import Allowed, no_fence
from usbdra.importer.dial import Link, dial
from usbdra.kube import errors
from usbdra.kube.addresses import internal_addresses
from usbdra.kube.reading import read
from usbdra.kube.types import NODE, RESOURCE_CLAIM
from usbdra.kube.verbs import Gets
from usbdra.plugin.contracts import Order
from usbdra.state.claims import ClaimRecord, ClaimRef, Route
from usbdra.state.exports import Session
from usbdra.transport import sockets
from usbdra.transport.ktls import Encryption
from usbdra.transport.sockets import LinkTimeouts
from usbdra.transport.tls import Identity
from usbdra.types import ClaimUid, DeviceName, NodeName, Offer, is_node, outside_host
from usbdra.usbip.extension import ClaimRef as WireClaim

log = logging.getLogger(__name__)

MAX_ADDRESSES = 256
"""Nodes whose address is remembered: a read of the API less for each of their devices."""


SameNode = Callable[[NodeName, str], Awaitable[None]]
"""Raises Refused when a peer's certificate was made for an earlier node of its name."""


KNOCK_SECONDS = 1.0
KNOCKS_AN_ADDRESS = 30
"""After so many it is asked whether the node has another address by now."""
KNOWN_SECONDS = 2.0
"""How long a node may take to accept a connection where it was last: two attempts of TCP."""
ADDRESS_SECONDS = 2.0
FRESH_SECONDS = 2.0
"""How long a link that was made ready is waited with: its exporter waits for a request no longer
than a few seconds."""


class Outside(Protocol):
    """The way to hosts outside the cluster (agent/outside.py)."""

    async def dial(self, order: Order, host: str) -> Link:
        """A link over which the order's device can be had. Raises UsbdraError."""
        ...

    async def address(self, host: str) -> str:
        """Where a host is now. Raises NotFound, ApiError."""
        ...


class Dialler:
    """Connects to the node of an order and gets its grant. Made ready, a link is there already."""

    def __init__(
        self,
        api: Gets,
        identity: Callable[[], Identity],
        port: int,
        encryption: Encryption,
        outside: Outside | None = None,
    ) -> None:
        """outside: the way to hosts outside the cluster; None where there are none. `identity`
        is asked for each link: its own business to be the same one (tls.LateIdentity)."""
        self._api = api
        self._outside = outside
        self._identity = identity
        self._port = port
        self._encryption = encryption
        self._addresses: dict[NodeName, str] = {}
        self._ready: dict[ClaimUid, asyncio.Task[_Ready]] = {}
        self._scouts = Scouts()
        self._knocker = Knocker(self._knock)

    async def connect(self, order: Order) -> Connection:
        """A granted connection. Raises NotFound, LinkError, Refused and their kin."""
        claim = WireClaim(order.claim.namespace, order.claim.name, order.claim.uid)
        async with await self._link(order) as link:
            device = await link.grant(order.name, claim=claim)
            facts = {"device": order.name, "node": order.node, "claim": str(claim)}
            log.info("device granted to us", extra={**facts, "encrypted": link.encrypted})
            return Connection(link.take_socket(), device, link.timings)

    @contextmanager
    def reaching(self, claim: ClaimUid, node: NodeName) -> Iterator[None]:
        """Dial a node while a claim that will ask it is still read and planned.

        The first `connect` for the claim takes the link; one that nobody takes is closed.
        """
        if not is_node(node):  # what it is shown depends on the device
            yield
            return
        task = asyncio.create_task(self._make_ready(node))
        self._ready[claim] = task
        try:
            yield
        finally:
            if self._ready.get(claim) is task:
                del self._ready[claim]
                _close(task)

    async def _link(self, order: Order) -> Link:
        host = outside_host(order.node)
        if host is None:
            return await self._made_ready(order) or await self._dial(order.node)
        if self._outside is None:
            raise NotFound(f"host {host} is outside the cluster; outsideHosts is off here")
        self._knocker.require(order.node)
        link = await self._outside.dial(order, host)
        self._remember(order.node, link.host)
        return link

    async def _make_ready(self, node: NodeName) -> _Ready:
        return _Ready(await self._dial(node), node, time.monotonic())

    async def _made_ready(self, order: Order) -> Link | None:
        """The link that was made for this claim; None when there is none, or none to rely on."""
        task = self._ready.pop(order.claim.uid, None)
        if task is None:
            return None
        try:
            ready = await asyncio.shield(task)
        except BaseException:
            _close(task)
            raise
        if ready.node == order.node and time.monotonic() - ready.since < FRESH_SECONDS:
            return ready.link
        ready.link.close()
        return None

    async def _dial(self, node: NodeName) -> Link:
        """A link to the node at the address that was right last time, else at the one it has now.

        The certificate says whether the node is there; nothing is asked of it before.
        """
        self._knocker.require(node)
        known = self._addresses.get(node)
        if known is not None:
            try:
                return await self._dial_at(known, node, LinkTimeouts(connect=KNOWN_SECONDS))
            except LinkError as error:
                if (address := await self._moved(node, known)) == known:
                    raise
                log.info("node %s was at %s: %s", node, known, error)
                return await self._dial_at(address, node)
        return await self._dial_at(await self._address(node), node)

    async def answers(self, node: NodeName) -> bool:
        """Return True as soon as the node accepts a connection where it was last.

        Nothing announces that, so it is tried each `KNOCK_SECONDS`, by one for all who wait: one
        packet, and nothing is said over the connection. False when no address is known.
        """
        if node not in self._addresses:
            return False
        await self._knocker.answers(node)
        return True

    async def _knock(self, node: NodeName, number: int) -> bool:
        """Once, where the node was last; after some times see where it is by now."""
        known = self._addresses.get(node)
        if known is None or await sockets.answers(known, self._port, KNOCK_SECONDS):
            return True
        if not number % KNOCKS_AN_ADDRESS:
            with suppress(UsbdraError):
                self._remember(node, await self._moved(node, known))
        return False

    async def answers_for(self, record: ClaimRecord | None) -> bool:
        """Wait until all nodes answer that have what this claim lacks; see supervisor.Answers."""
        devices = record.devices if record is not None else ()
        nodes = {d.node for d in devices if d.route is Route.VHCI and d.held is None}
        return bool(nodes) and all([await self.answers(node) for node in nodes])

    async def _moved(self, node: NodeName, known: str) -> str:
        """The address of a node that did not answer where it was. An API server that does not
        answer either, as when our own cable is out, says nothing new and is not waited for."""
        try:
            async with asyncio.timeout(ADDRESS_SECONDS):
                return await self._address(node)
        except (errors.ApiError, TimeoutError):
            return known

    async def _dial_at(
        self, address: str, node: NodeName, timeouts: LinkTimeouts | None = None
    ) -> Link:
        identity = self._identity()
        async with self._scouts.first(address) as connected:
            link = await dial(
                address,
                self._port,
                identity=identity,
                expect=node,
                encryption=self._encryption,
                timeouts=timeouts,
                progress=connected,
            )
        self._remember(node, address)
        return link

    def _remember(self, node: NodeName, address: str) -> None:
        """Where a node was last: there it is dialled first, and knocked at."""
        self._addresses.pop(node, None)
        if len(self._addresses) >= MAX_ADDRESSES:
            self._addresses.pop(next(iter(self._addresses)))
        self._addresses[node] = address

    async def _address(self, name: NodeName) -> str:
        host = outside_host(name)
        if host is not None and self._outside is not None:
            return await self._outside.address(host)
        try:
            node = await self._api.get(NODE, name)
        except errors.ApiNotFound as error:
            raise NotFound(f"node {name} is not in the cluster any more") from error
        for address in internal_addresses(node):
            return address
        raise NotFound(f"node {name} has no InternalIP")


class _Ready(NamedTuple):
    """A link nothing was asked over yet; `since` is of time.monotonic()."""

    link: Link
    node: NodeName
    since: float


def _close(task: asyncio.Task[_Ready]) -> None:
    """Nobody wants the link, be it there or still to come."""
    task.cancel()

    def over(task: asyncio.Task[_Ready]) -> None:
        if not task.cancelled() and task.exception() is None:
            task.result().link.close()

    task.add_done_callback(over)


class ClaimGuard:
    """Authorises each request for one of our devices by a live read of its claim."""

    def __init__(
        self,
        api: Gets,
        driver: str,
        node: NodeName,
        held_here: Callable[[DeviceName], ClaimRef | None],
        allowed: Allowed = no_fence,
        same_node: SameNode | None = None,
    ) -> None:
        self._api = api
        self._driver = driver
        self._node = node
        self._held_here = held_here
        self._allowed = allowed
        self._same_node = same_node

    async def authorise(self, offer: Offer, request: GrantRequest, peer: Peer) -> None:
        """Return when the peer may have the device. Raises UsbdraError with the reason."""
        if peer.node is None:
            raise Refused("a device of this node is given only over an authenticated link")
        if not is_node(peer.node):
            raise Refused(f"{peer.node} is no node of the cluster")
        if request.claim is None:
            raise Refused("a device of this node is given only for a ResourceClaim")
        if self._same_node is not None:
            await self._same_node(peer.node, peer.node_uid)
        holder = self._held_here(offer.name)
        if holder is not None:
            raise DeviceBusy(offer.name, str(holder))
        self._allowed(offer.name, request.claim.namespace)
        await self._require(request.claim, offer.name, peer.node)

    async def outlived(self, name: DeviceName, session: Session) -> bool:
        """Whether a session's claim gives the device to its node no more (R48).

        An API that does not answer proves nothing.
        """
        if session.claim is None or session.node is None:
            return False
        try:
            await self._require(session.claim, name, session.node)
        except Refused:
            return True
        except errors.ApiError as error:
            log.warning("%s is kept: %s", session.holder, error)
        return False

    async def _require(self, claim: WireClaim, device: DeviceName, node: NodeName) -> None:
        rightful.require(
            await read(self._api, RESOURCE_CLAIM, claim.name, claim.namespace),
            what=f"claim {claim.namespace}/{claim.name}",
            uid=claim.uid,
            driver=self._driver,
            device=device,
            exporter=self._node,
            importer=node,
        )


class LiveClaims:
    """The plugin's Claims: every answer is read from the API server now."""

    def __init__(self, api: Gets) -> None:
        self._api = api

    async def get(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """The claim, None when there is none."""
        return await read(self._api, RESOURCE_CLAIM, name, namespace)
