# SPDX-License-Identifier: Apache-2.0
"""Tells a claim's owner by an Event that this node refused the claim's device to a peer.

Owns how often: a peer that keeps asking, or invents claims, fills no namespace with Events. The
audit log has every refusal. Must not delay the refusal itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from usbdra.errors import UsbdraError
from usbdra.exporter.broker import GrantRequest, Peer
from usbdra.exporter.rate import Bucket
from usbdra.kube.reading import read
from usbdra.kube.types import RESOURCE_CLAIM
from usbdra.kube.verbs import Gets
from usbdra.state.claims import ClaimRef
from usbdra.types import NodeName

log = logging.getLogger(__name__)

REPEAT_SECONDS = 60.0
"""The same reason for the same claim is told once in this time."""
_PER_SECOND, _BURST = 0.2, 20
_MAX_WAITING = 64
_MAX_TOLD = 1024

Tell = Callable[[ClaimRef, str, str, bool], Awaitable[None]]
"""KubeReporter.event: claim, reason, message, whether it is a warning."""


class RefusalEvents:
    """See guard.OnRefused. `run` does the work; a call only queues."""

    def __init__(self, api: Gets, node: NodeName, tell: Tell) -> None:
        self._api = api
        self._node = node
        self._tell = tell
        self._bucket = Bucket(_PER_SECOND, _BURST)
        self._told: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._waiting: asyncio.Queue[tuple[ClaimRef, str, str]] = asyncio.Queue(_MAX_WAITING)

    def __call__(self, request: GrantRequest, peer: Peer, error: UsbdraError) -> None:
        """Queue an Event, unless it was told a moment ago or too much is told already."""
        claim = request.claim
        if claim is None or self._waiting.full():
            return
        now = asyncio.get_running_loop().time()
        key = (str(claim.uid), error.reason)
        recent = now - self._told.get(key, -REPEAT_SECONDS) < REPEAT_SECONDS
        if recent or not self._bucket.take(now):
            return
        self._told[key] = now
        self._told.move_to_end(key)
        if len(self._told) > _MAX_TOLD:
            self._told.popitem(last=False)
        message = (
            f"node {self._node} did not give device {request.device} to "
            f"{peer.node or peer.address}: {error}"
        )
        ref = ClaimRef(claim.namespace, claim.name, claim.uid)
        self._waiting.put_nowait((ref, error.reason, message))

    async def run(self) -> None:
        """Tell what is queued, for ever; of claims that exist and no others."""
        while True:
            ref, reason, message = await self._waiting.get()
            try:
                claim = await read(self._api, RESOURCE_CLAIM, ref.name, ref.namespace)
            except UsbdraError as error:
                log.warning("no event of a refusal: %s", error)
                continue
            if claim is not None and claim["metadata"]["uid"] == ref.uid:
                await self._tell(ref, reason, message, True)
