# SPDX-License-Identifier: Apache-2.0
"""Prepares a claim of bench/cluster/pair.py and gives it back, again and again: to be sampled.

    python -m bench.flame.repeated DISK MEMORY NAMESPACE ROUNDS CLAIM=UID

Nothing but that, and no log: what a sampler finds in these two processes after their start is
Prepare and Unprepare on both nodes.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from bench.cluster.pair import SETTLE_SECONDS, importer, other_node
from usbdra.kube.client import KubeClient
from usbdra.state.claims import ClaimRef
from usbdra.types import ClaimUid


async def repeat(disk: Path, memory: Path, ref: ClaimRef, rounds: int) -> None:
    """So many rounds, each with a device that is back with its host."""
    api = await KubeClient.connect()
    try:
        async with (
            other_node(memory / "a") as remotes,
            importer(memory / "b", disk, api, remotes, 0.0) as ours,
        ):
            for _ in range(rounds):
                await ours.preparer.prepare(ref)
                await ours.preparer.unprepare(ref)
                await asyncio.sleep(SETTLE_SECONDS)
    finally:
        await api.aclose()


if __name__ == "__main__":
    disk, memory, namespace, number, named = sys.argv[1:]
    name, uid = named.split("=", 1)
    ref = ClaimRef(namespace, name, ClaimUid(uid))
    asyncio.run(repeat(Path(disk), Path(memory), ref, int(number)))
