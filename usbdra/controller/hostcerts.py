# SPDX-License-Identifier: Apache-2.0
"""Certificates for hosts outside the cluster: requests that an administrator has approved.

Owns what such a request may ask for: the name of a host that has an object, and nothing else. Who
may approve is the cluster's rights (`approve` on this signer), not ours. Must not sign on its own.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from usbdra.controller.requests import Api, Wish
from usbdra.controller.review import pem_of, require_usages
from usbdra.errors import Refused
from usbdra.kube import errors
from usbdra.kube.custom import Contract
from usbdra.kube.types import Object
from usbdra.pki.authority import Pair, sign_peer
from usbdra.pki.request import PeerRequest, read_peer_request
from usbdra.types import outside_host

if TYPE_CHECKING:
    from cryptography import x509


LIFETIME = timedelta(days=90)
"""Long enough for a host that is switched on once a quarter."""


class HostCertificates:
    """Looks at requests for hosts' certificates."""

    def __init__(self, api: Api, contract: Contract) -> None:
        self._api = api
        self._contract = contract

    async def look(self, csr: Object) -> Wish:
        """See controller/requests.py's Look."""
        require_usages(csr)
        request = read_peer_request(pem_of(csr))
        host = outside_host(request.peer)
        if host is None or request.uris or request.uid:
            raise Refused(f"the request is for {request.peer}, no host outside the cluster")
        try:
            await self._api.get(self._contract.host, host)
        except errors.ApiNotFound as error:
            raise Refused(f"there is no USBExporterHost {host}") from error
        return Wish(request.peer, partial(_sign, request))


def renewed(authority: Pair, host: str, pem: bytes, now: datetime) -> x509.Certificate:
    """The next certificate of a host that has shown its present one. Raises Refused for a request
    of another."""
    request = read_peer_request(pem)
    if outside_host(request.peer) != host or request.uris or request.uid:
        raise Refused(f"host {host} asks for a certificate of {request.peer}")
    return _sign(request, authority, now, LIFETIME)


def _sign(
    request: PeerRequest, authority: Pair, now: datetime, lifetime: timedelta
) -> x509.Certificate:
    return sign_peer(authority, request.peer, request.public_key, now, lifetime)
