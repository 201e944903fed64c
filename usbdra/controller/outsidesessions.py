# SPDX-License-Identifier: Apache-2.0
"""Which sessions of a host outside the cluster have outlived their claim or their node.

Owns the decision, on live reads: the host cannot make it. A claim that is only marked for deletion
still has its device, and an API server that does not answer proves nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from usbdra.errors import Refused
from usbdra.exporter import rightful
from usbdra.kube import errors
from usbdra.kube.custom import Contract
from usbdra.kube.reading import read
from usbdra.kube.types import NODE, RESOURCE_CLAIM
from usbdra.kube.verbs import Gets
from usbdra.types import DeviceName, NodeName, outside_node
from usbdra.usbip.extension import HeldSession

log = logging.getLogger(__name__)


class SessionCheck:
    """See the module."""

    def __init__(self, api: Gets, contract: Contract) -> None:
        self._api = api
        self._driver = contract.driver

    async def over(self, host: str, sessions: Sequence[HeldSession]) -> tuple[str, ...]:
        """Keys of the sessions that are to be ended."""
        return tuple([one.key for one in sessions if await self._is_over(host, one)])

    async def _is_over(self, host: str, session: HeldSession) -> bool:
        claim = session.claim
        try:
            await self._require(host, session)
        except Refused as error:
            facts = {"host": host, "device": session.device, "claim": str(claim)}
            log.warning("session is to be ended: %s", error, extra=facts)
            return True
        except errors.ApiError as error:
            log.warning("session of %s on host %s is kept: %s", claim, host, error)
        return False

    async def _require(self, host: str, session: HeldSession) -> None:
        """Raises Refused for what is over beyond doubt, ApiError."""
        if await read(self._api, NODE, session.node) is None:
            raise Refused(f"node {session.node} is not in the cluster any more")
        claim = session.claim
        found = await read(self._api, RESOURCE_CLAIM, claim.name, claim.namespace)
        if found is not None:
            meta = {k: v for k, v in found["metadata"].items() if k != "deletionTimestamp"}
            found = {**found, "metadata": meta}
        rightful.require(
            found,
            what=f"claim {claim}",
            uid=claim.uid,
            driver=self._driver,
            device=DeviceName(session.device),
            exporter=outside_node(host),
            importer=NodeName(session.node),
        )
