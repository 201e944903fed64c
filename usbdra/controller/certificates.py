# SPDX-License-Identifier: Apache-2.0
"""Certificates for nodes: what the requests of agents are answered.

Owns the composition. Whether to sign is review.py's decision, with which CA authority.py's, the
answer's way requests.py's.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from usbdra.controller.requests import Api, Requests, Signing, Wish
from usbdra.controller.review import Rules, node_of, review
from usbdra.kube.reading import read
from usbdra.kube.types import NODE, Object
from usbdra.pki.authority import Pair, sign_node
from usbdra.pki.request import NodeRequest

if TYPE_CHECKING:
    from cryptography import x509


class Signer(Requests):
    """Run it on the leader. `signing` None: only approve, somebody else's signer signs."""

    def __init__(
        self,
        api: Api,
        rules: Rules,
        signing: Signing | None,
        lifetime: timedelta = timedelta(hours=24),
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._rules = rules
        super().__init__(api, rules.signer, self._review, signing, lifetime, clock=clock)

    async def _review(self, csr: Object) -> Wish:
        node = await read(self._api, NODE, node_of(csr, self._rules))
        request = review(csr, node, self._rules)
        text = f"asked for by the agent of node {request.node}"
        return Wish(request.node, partial(_sign, request), "AgentOfNode", text)


def _sign(
    request: NodeRequest, authority: Pair, now: datetime, lifetime: timedelta
) -> x509.Certificate:
    return sign_node(
        authority,
        request.node,
        request.addresses,
        request.public_key,
        now,
        lifetime,
        request.node_uid,
    )
