# SPDX-License-Identifier: Apache-2.0
"""Runs in a node: the agent's half of exporting, of its own parts, without a cluster.

    exporting_agent.py NODE PEER ADDRESS

Answers `usbdra exporter` and gives devices to one peer, whose claims are all right: who may have
what is not asked here. Everything else is as in the agent, on the real kernel. Prints "exporting".
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection
from functools import partial
from pathlib import Path

from usbdra.agent.export import Export
from usbdra.agent.options import AgentOptions
from usbdra.discovery import hostuse, tree
from usbdra.discovery.inventory import Inventory
from usbdra.discovery.live import LiveInventory
from usbdra.discovery.uevent import NetlinkSource, UeventHub
from usbdra.exporter.bind import Binder
from usbdra.exporter.local import LocalBroker
from usbdra.stopping import until_told
from usbdra.transport.watch import LinkWatch, NetlinkEnds
from usbdra.types import NodeName

ROOT = Path("/")


async def run(node: NodeName, peer: NodeName, address: str) -> None:
    """Until cancelled."""

    async def addresses(name: NodeName) -> Collection[str]:
        return {address} if name == peer else ()

    options = AgentOptions(node=node, pod_uid="test", exporter="process")
    options.exporter_socket.parent.mkdir(mode=0o711, exist_ok=True)
    hub = UeventHub(NetlinkSource())
    hub.start()
    try:
        live = LiveInventory(Inventory(ROOT, node=node), hub, poke=tree.poke)
        live.inventory.resync()
        in_use = partial(hostuse.holder_of, ROOT)
        broker = LocalBroker(Binder(ROOT, events=hub, in_use=in_use), lambda: live.snapshot)
        await broker.start()
        links = LinkWatch(lambda: NetlinkEnds(options.port))
        links.listen(broker.link_ended)
        export = Export(options, broker, pki=lambda: options.pki_dir, addresses=addresses)
        try:
            async with asyncio.TaskGroup() as group:
                for work in (live.run(), links.run(), export.run()):
                    group.create_task(work)
                print("exporting", flush=True)
        finally:
            await broker.stop()
    finally:
        hub.close()


if __name__ == "__main__":
    ours, theirs, where = sys.argv[1:]
    asyncio.run(until_told(run(NodeName(ours), NodeName(theirs), where), "agent"))
