# SPDX-License-Identifier: Apache-2.0
"""Runs in the control plane's network: the watches of many nodes' agents, in one process.

    python -m bench.scale.watchers KUBECONFIG NODES

The first NODES simulated nodes each have what an agent follows: its own slices by their labels and
its node's objects by a field. Says `ready` when all have begun; at the end of its input it says, as
JSON, how many changes each kind's watches were told of.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from bench.cluster.controlling import NUSB
from bench.scale.population import NAMES, node_name
from usbdra.kube.client import KubeClient
from usbdra.kube.types import RESOURCE_SLICE
from usbdra.kube.watch import Change, Reflector
from usbdra.slices.publish import Owner

NODES_A_CLIENT = 40
"""A client keeps at most a hundred connections."""


async def follow(watch: Reflector, kind: str, told: dict[str, int], begun: asyncio.Event) -> None:
    """Count what a watch tells after its first list, until cancelled."""
    async for change in watch.run():
        if not isinstance(change, Change):
            begun.set()
        elif begun.is_set():
            told[kind] = told.get(kind, 0) + 1


async def main(kubeconfig: Path, nodes: int) -> None:
    """See above."""
    told: dict[str, int] = {}
    tasks, all_begun, clients = [], [], []
    for number in range(nodes):
        if number % NODES_A_CLIENT == 0:
            clients.append(await KubeClient.connect(kubeconfig, timeout=600.0))
        node, client = node_name(number), clients[-1]
        own = Owner(node, "", NAMES.driver).selector
        for watch, kind in (
            (Reflector(client, RESOURCE_SLICE, labels=own), "slices"),
            (Reflector(client, NUSB, fields=f"status.nodeName={node}"), "objects"),
        ):
            begun = asyncio.Event()
            all_begun.append(begun)
            tasks.append(asyncio.create_task(follow(watch, kind, told, begun)))
    for begun in all_begun:
        await begun.wait()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(json.dumps(told), flush=True)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for client in clients:
        await client.aclose()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
