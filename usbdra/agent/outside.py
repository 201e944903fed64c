# SPDX-License-Identifier: Apache-2.0
"""The way to devices of hosts outside the cluster: a grant of the controller, shown to the host.

Owns the key and certificate of each grant: in memory, for one connection. A host reads no claims;
the controller does, and says by its signature that this node's claim has the device.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from usbdra.agent.options import AgentOptions
from usbdra.errors import NotFound, Refused
from usbdra.importer.dial import Link, dial
from usbdra.kube import errors
from usbdra.kube.custom import GRANT_SIGNER, Contract
from usbdra.kube.signing import Api as Asking
from usbdra.kube.signing import ask
from usbdra.kube.types import NODE
from usbdra.kube.verbs import Gets
from usbdra.pki import files
from usbdra.pki.authority import Pair, new_key, read_certificates
from usbdra.pki.grants import Grant
from usbdra.pki.request import make_peer_request
from usbdra.plugin.contracts import Order
from usbdra.slices.limits import digest, shorten
from usbdra.transport.ktls import Role
from usbdra.transport.tls import TlsContext, context_of

ANSWER_SECONDS = 20.0
"""For the controller's answer: the kubelet waits 45 s for all of Prepare."""


class Api(Asking, Gets, Protocol):
    """The verbs of KubeClient that grants need."""


class Shown:
    """See transport/tls.py's Contexts: a context for the one who dials."""

    def __init__(self, context: TlsContext) -> None:
        self._context = context

    def context(self, role: Role) -> TlsContext:
        """The same, whatever the role: a grant is only ever shown by who dials."""
        assert role is Role.CLIENT
        return self._context


class OutsideHosts:
    """Hosts as this node reaches them. hosts: their kind; pki: the directory of the node's
    certificate, whose CAs it believes; patience: in seconds, for the controller's answer."""

    def __init__(
        self,
        api: Api,
        options: AgentOptions,
        pki: Callable[[], Path],
        patience: float = ANSWER_SECONDS,
    ) -> None:
        contract = Contract(options.group)
        self._api = api
        self._options = options
        self._kind = contract.host
        self._signer = contract.key(GRANT_SIGNER)
        self._pki = pki
        self._patience = patience
        self._uid = ""

    async def dial(self, order: Order, host: str) -> Link:
        """A link over which the order's device, and no other, can be had.

        Raises NotFound for a host without an object, Refused with the controller's reason,
        LinkError, ApiError.
        """
        return await dial(
            await self.address(host),
            self._options.port,
            identity=await self._grant(order, host),
            expect=order.node,
            encryption=self._options.encryption,
        )

    async def address(self, host: str) -> str:
        """Where the host is now. Raises NotFound, ApiError."""
        try:
            item = await self._api.get(self._kind, host)
        except errors.ApiNotFound as error:
            raise NotFound(f"host {host} has no USBExporterHost any more") from error
        return str(item["spec"]["address"])

    async def _grant(self, order: Order, host: str) -> Shown:
        """What to show the host for this order."""
        ref, node = order.claim, self._options.node
        grant = Grant(host, order.name, ref.namespace, ref.name, ref.uid)
        key = new_key()
        request = make_peer_request(key, node, await self._node_uid(), (grant.uri(),))
        name = f"{shorten(f'usbdra-grant-{node}', 200)}-{digest(request.decode())}"
        pem = await ask(self._api, name, request, self._signer, None, self._patience)
        cert = read_certificates(pem, "the signer's answer")[0]
        if cert.public_key() != key.public_key():
            raise Refused("the signer answered with the certificate of another key")
        pair = Pair(cert, key)
        ca = files.read_pem(self._pki() / files.CA_CERT)
        return Shown(context_of(pair.cert_pem(), pair.key_pem(), ca, Role.CLIENT))

    async def _node_uid(self) -> str:
        """The UID of our Node, which lasts as long as we do."""
        if not self._uid:
            self._uid = str((await self._api.get(NODE, self._options.node))["metadata"]["uid"])
        return self._uid
