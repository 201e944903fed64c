# SPDX-License-Identifier: Apache-2.0
"""Whether a node is granted a device of a host outside the cluster: what requests are answered.

Owns the facts that a decision stands on, all read live: who asks (the API server says from which
node), the claim, the device's assignment, the host. It is the same decision as the one that a node
makes for its own devices (agent/peers.py), in the place of a host that cannot read claims.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from usbdra.controller.requests import Api, Wish
from usbdra.controller.review import Rules, asked_by, node_of
from usbdra.errors import Refused
from usbdra.exporter import fence, rightful
from usbdra.kube.custom import Contract
from usbdra.kube.reading import read
from usbdra.kube.types import NODE, RESOURCE_CLAIM, Object
from usbdra.pki.authority import Pair, sign_peer
from usbdra.pki.grants import Grant, parse_grant
from usbdra.pki.request import PeerRequest, read_peer_request
from usbdra.slices.assigned import assigned_to
from usbdra.types import DeviceName, NodeName, outside_node

if TYPE_CHECKING:
    from cryptography import x509

LIFETIME = timedelta(minutes=5)
"""Of a grant: a node shows it once, right after it came. Clocks of hosts may differ somewhat."""


class Granting:
    """Looks at requests for grants. assignment: Off, Optional or Required, as agents are told."""

    def __init__(self, api: Api, contract: Contract, rules: Rules, assignment: str) -> None:
        self._api = api
        self._contract = contract
        self._rules = rules
        self._assignment = assignment

    async def look(self, csr: Object) -> Wish:
        """See controller/requests.py's Look."""
        node = NodeName(node_of(csr, self._rules))
        asked = asked_by(csr, await read(self._api, NODE, node), self._rules)
        request = read_peer_request(asked.pem)
        if (request.peer, request.uid) != (node, asked.uid):
            raise Refused(f"the request is for {request.peer}, the token of node {node}")
        grants = [parse_grant(uri) for uri in request.uris]
        if len(grants) != 1 or grants[0] is None:
            raise Refused("the request does not name one device for one claim")
        await self._require(grants[0], node)
        text = f"claim {grants[0].namespace}/{grants[0].claim} has the device on node {node}"
        return Wish(node, partial(_sign, request), "ClaimAllocated", text)

    async def _require(self, grant: Grant, node: NodeName) -> None:
        """Raises Refused, ApiError."""
        host, device = outside_node(grant.host), DeviceName(grant.device)
        if await read(self._api, self._contract.host, grant.host) is None:
            raise Refused(f"there is no host {grant.host}")
        rightful.require(
            await read(self._api, RESOURCE_CLAIM, grant.claim, grant.namespace),
            what=f"claim {grant.namespace}/{grant.claim}",
            uid=grant.uid,
            driver=self._contract.driver,
            device=device,
            exporter=host,
            importer=node,
        )
        if self._assignment != "Off":
            assigned = await self._assigned(grant)
            required = self._assignment == "Required"
            fence.require(device, grant.namespace, assigned, required=required)

    async def _assigned(self, grant: Grant) -> str | None:
        """The namespace the device is assigned to, "" for none, None for not known."""
        kind = self._contract.node_device
        listed = await self._api.list(kind, fields=f"status.host={grant.host}")
        for item in listed.get("items") or ():
            attributes = (item.get("status") or {}).get("attributes") or {}
            if attributes.get("name") == grant.device:
                return assigned_to(item)
        return None


def _sign(
    request: PeerRequest, authority: Pair, now: datetime, lifetime: timedelta
) -> x509.Certificate:
    return sign_peer(
        authority,
        request.peer,
        request.public_key,
        now,
        min(lifetime, LIFETIME),
        uid=request.uid,
        uris=request.uris,
    )
