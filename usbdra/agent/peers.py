# SPDX-License-Identifier: Apache-2.0
"""Both sides of a claim's link between two agents: asking for a device, and who may have ours.

Owns the address of a node and the live read of a claim. The decision itself is
exporter/rightful.py's; the protocol is importer/dial.py's and exporter/server.py's.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from usbdra.agent.devices import Connection
from usbdra.errors import DeviceBusy, LinkError, NotFound, Refused
from usbdra.exporter import rightful
from usbdra.exporter.broker import GrantRequest, Peer
from usbdra.exporter.fence import Allowed, no_fence
from usbdra.importer.dial import Link, dial
from usbdra.kube import errors
from usbdra.kube.addresses import internal_addresses
from usbdra.kube.types import NODE, RESOURCE_CLAIM, Kind, Object
from usbdra.plugin.contracts import Order
from usbdra.state.claims import ClaimRef
from usbdra.state.exports import Session
from usbdra.transport.ktls import Encryption
from usbdra.transport.tls import Identity
from usbdra.types import DeviceName, NodeName, Offer
from usbdra.usbip.extension import ClaimRef as WireClaim

log = logging.getLogger(__name__)

MAX_ADDRESSES = 256
"""Nodes whose address is remembered: a read of the API less for each of their devices."""


SameNode = Callable[[NodeName, str], Awaitable[None]]
"""Raises Refused when a peer's certificate was made for an earlier node of its name."""


class Api(Protocol):
    """The verb of KubeClient that peers need."""

    async def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object:
        """See KubeClient.get."""
        ...


class Dialler:
    """Connects to the node of an order and gets its grant."""

    def __init__(
        self, api: Api, identity: Callable[[], Identity], port: int, encryption: Encryption
    ) -> None:
        self._api = api
        self._identity = identity
        self._port = port
        self._encryption = encryption
        self._addresses: dict[NodeName, str] = {}

    async def connect(self, order: Order) -> Connection:
        """A granted connection. Raises NotFound, LinkError, Refused and their kin."""
        claim = WireClaim(order.claim.namespace, order.claim.name, order.claim.uid)
        async with await self._dial(order.node) as link:
            device = await link.grant(order.name, claim=claim)
            facts = {"device": order.name, "node": order.node, "claim": str(claim)}
            log.info("device granted to us", extra={**facts, "encrypted": link.encrypted})
            return Connection(link.take_socket(), device, link.timings)

    async def _dial(self, node: NodeName) -> Link:
        """A link to the node at the address that was right last time, else at the one it has now.

        The certificate says whether the node is there; nothing is asked of it before.
        """
        known = self._addresses.pop(node, None)
        if known is not None:
            try:
                return await self._dial_at(known, node)
            except LinkError as error:
                if (address := await self._address(node)) == known:
                    raise
                log.info("node %s was at %s: %s", node, known, error)
                return await self._dial_at(address, node)
        return await self._dial_at(await self._address(node), node)

    async def _dial_at(self, address: str, node: NodeName) -> Link:
        link = await dial(
            address,
            self._port,
            identity=self._identity(),
            expect=node,
            encryption=self._encryption,
        )
        if len(self._addresses) >= MAX_ADDRESSES:
            self._addresses.pop(next(iter(self._addresses)))
        self._addresses[node] = address
        return link

    async def _address(self, name: NodeName) -> str:
        try:
            node = await self._api.get(NODE, name)
        except errors.ApiNotFound as error:
            raise NotFound(f"node {name} is not in the cluster any more") from error
        for address in internal_addresses(node):
            return address
        raise NotFound(f"node {name} has no InternalIP")


class ClaimGuard:
    """Authorises each request for one of our devices by a live read of its claim."""

    def __init__(
        self,
        api: Api,
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
            await read_claim(self._api, claim.namespace, claim.name),
            what=f"claim {claim.namespace}/{claim.name}",
            uid=claim.uid,
            driver=self._driver,
            device=device,
            exporter=self._node,
            importer=node,
        )


class LiveClaims:
    """The plugin's Claims: every answer is read from the API server now."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def get(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """The claim, None when there is none."""
        return await read_claim(self._api, namespace, name)


async def read_claim(api: Api, namespace: str, name: str) -> Mapping[str, Any] | None:
    """A ResourceClaim as it is now; None when there is none. Raises ApiError."""
    try:
        return await api.get(RESOURCE_CLAIM, name, namespace)
    except errors.ApiNotFound:
        return None
