# SPDX-License-Identifier: Apache-2.0
"""Who may have a device of a host outside the cluster: whoever shows the cluster's grant for it.

Owns that decision. The host reads no claims; the controller did before it signed the grant
(controller/granting.py), and TLS has checked the signature and its time. Must not do I/O.
"""

from __future__ import annotations

from usbdra.errors import Refused
from usbdra.exporter.broker import GrantRequest, Peer
from usbdra.pki.grants import Grant, parse_grant
from usbdra.types import Offer, is_node


class GrantGuard:
    """Authorises as exporter/lease.py's Authorise, for the host of this name."""

    def __init__(self, host: str) -> None:
        self._host = host

    async def authorise(self, offer: Offer, request: GrantRequest, peer: Peer) -> None:
        """Return when the peer was granted this device for this claim. Raises Refused."""
        if peer.node is None or not is_node(peer.node):
            raise Refused("a device of this host is given to nodes of the cluster alone")
        if request.claim is None:
            raise Refused("a device of this host is given only for a ResourceClaim")
        claim = request.claim
        wanted = Grant(self._host, offer.name, claim.namespace, claim.name, claim.uid)
        if wanted not in (parse_grant(uri) for uri in peer.uris):
            raise Refused(
                f"node {peer.node} shows no grant of the cluster for device {offer.name} and "
                f"claim {claim}"
            )
