# SPDX-License-Identifier: Apache-2.0
"""Runs on the made-up machine of an agent: may this node have that device, again and again.

    python -m bench.cluster.authorise MEMORY NAMESPACE CLAIM UID ROUNDS

The agent's own decision about one request, as it follows the exporter's ACQUIRE: the kernel is
asked about the connection, the peer's Node must bear it out, the claim is read and judged, an audit
line is written. No device is bound: that is what the decision allows. In turn with it one bare read
of the claim, below which no decision that reads it can be. Prints JSON, for
each way a list of {"seconds", "cpu", "requests"}: `read` is that bare read, `known` the decision
about a node that uses a device of this one or did lately, `stranger` about one that nobody knows.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.cluster.pair import EXPORTER, IMPORTER, PORT, SERIALS
from tests.cluster.driver import DRIVER
from tests.fakes.counted import Counted, NoPorts
from tests.fakes.sysfs import SysTree
from usbdra._native import ktls
from usbdra.agent.addresses import NodeAddresses
from usbdra.agent.peers import ClaimGuard
from usbdra.agent.removed import RemovedNodes
from usbdra.discovery.inventory import scan
from usbdra.exporter.broker import Granted, GrantRequest, Peer
from usbdra.exporter.evidence import Evidence
from usbdra.exporter.guard import GuardedBroker
from usbdra.exporter.lease import remote_of
from usbdra.exporter.policy import AccessPolicy
from usbdra.kube.client import KubeClient
from usbdra.kube.types import RESOURCE_CLAIM
from usbdra.state.exports import Session
from usbdra.transport.ktls import Encryption
from usbdra.types import ClaimUid, NodeName, Offer, RemoteDevice
from usbdra.usbip.extension import ClaimRef


class Deciding:
    """A broker that authorises and binds nothing."""

    def __init__(self, guard: ClaimGuard, offer: Offer) -> None:
        self._guard = guard
        self._offer = offer

    async def inventory(self, peer: Peer) -> Sequence[RemoteDevice]:
        """Nobody asks."""
        return ()

    async def acquire(
        self, request: GrantRequest, peer: Peer, sock: socket.socket | None = None
    ) -> Granted:
        """The decision alone."""
        await self._guard.authorise(self._offer, request, peer)
        return Granted("bench", remote_of(self._offer), ())

    async def hand_over(self, granted: Granted, sock: socket.socket) -> None:
        """Nothing was bound."""

    async def abandon(self, granted: Granted) -> None:
        """Nothing was bound."""


@contextmanager
def connection() -> Iterator[socket.socket]:
    """The exporter's end of a connection that a peer made to its port."""
    with (
        socket.create_server(("127.0.0.1", PORT)) as listener,
        socket.create_connection(("127.0.0.1", PORT)),
    ):
        accepted, _ = listener.accept()
        with accepted:
            yield accepted


def deciding(api: Counted, nodes: NodeAddresses, offer: Offer) -> GuardedBroker:
    """The agent's guard in front of `Deciding`; links are in clear, this kernel may have no TLS."""
    vouch = Evidence(EXPORTER, PORT, nodes, AccessPolicy(), Encryption.ALLOWED, ktls)
    guard = ClaimGuard(api, DRIVER, EXPORTER, lambda _: None, same_node=nodes.require_same)
    return GuardedBroker(Deciding(guard, offer), vouch=vouch)


async def timed(act: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """Seconds of one, and those of it that this process was on a processor."""
    started, worked = time.perf_counter(), time.process_time()
    await act()
    return time.perf_counter() - started, time.process_time() - worked


async def rounds(folder: Path, claim: ClaimRef, count: int) -> dict[str, list[dict[str, Any]]]:
    """See above; the first round is a warm-up."""
    tree = SysTree(folder)
    tree.controller().root_hub(3).plug(3, serial=SERIALS[0].encode())
    (offer,) = scan(folder, node=EXPORTER).offers
    client = await KubeClient.connect()
    api = Counted(client)
    removed = RemovedNodes(api, forbidden, NoPorts())
    try:
        session = Session("bench", "bench", claim, IMPORTER)
        removed.taken(offer.device.syspath, offer.name, session)
        await api.watching()
        with connection() as sock:
            known = deciding(api, NodeAddresses(api, removed.seen), offer)
            request = GrantRequest(offer.name, claim)
            address, port = sock.getpeername()[:2]
            peer = Peer(address, port, IMPORTER)
            ways: dict[str, Callable[[], Awaitable[object]]] = {
                "read": lambda: client.get(RESOURCE_CLAIM, claim.name, claim.namespace),
                "known": lambda: known.acquire(request, peer, sock),
                "stranger": lambda: deciding(api, NodeAddresses(api), offer).acquire(
                    request, peer, sock
                ),
            }
            found: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
            for _ in range(count + 1):
                for way, act in ways.items():
                    api.made.clear()
                    seconds, cpu = await timed(act)
                    sample = {"seconds": seconds, "cpu": cpu, "requests": list(api.made)}
                    found[way].append(sample)
    finally:
        await removed.aclose()
        await client.aclose()
    return {way: samples[1:] for way, samples in found.items()}


async def forbidden(node: NodeName) -> None:
    """No node leaves here."""
    raise AssertionError(f"node {node} left")


if __name__ == "__main__":
    memory, namespace, name, uid, number = sys.argv[1:]
    ref = ClaimRef(namespace, name, ClaimUid(uid))
    print(json.dumps(asyncio.run(rounds(Path(memory), ref, int(number)))))
