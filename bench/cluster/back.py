# SPDX-License-Identifier: Apache-2.0
"""Runs on the made-up machine of an agent: a link that comes back after the cable was out.

    python -m bench.cluster.back DISK MEMORY NAMESPACE ROUNDS CLAIM=UID

As pair.py, with the node that has the device behind a cable (cable.py), its API server too. In a
round the cable is pulled until this node knows, and for some seconds more; what ends the link,
tells of it and attaches again is all the product's, with the kernel's TCP between. Prints JSON:
{"known": seconds from the pull until the claim is known to be lost, "back": seconds from the plug
until it is whole again}, a list each.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from bench.cluster.cable import Cable
from bench.cluster.pair import PORT, importer, other_node
from usbdra.agent.supervisor import Cause, Pauses, Supervisor
from usbdra.kube.client import KubeClient
from usbdra.state.claims import ClaimRecord, ClaimRef
from usbdra.transport.watch import LinkWatch, NetlinkEnds
from usbdra.types import ClaimUid

AWAY_SECONDS = (2.0, 6.0)
"""How long the cable stays out once that is known: any moment between two attempts."""
STABLE_SECONDS = 2.0
"""A link that held so long is no flapping one, which would be left alone for longer and longer; a
minute in the product."""
LIMIT_SECONDS = 120.0


async def rounds(disk: Path, memory: Path, ref: ClaimRef, count: int) -> dict[str, list[float]]:
    """See above."""
    cable, lost, whole = Cable(), asyncio.Event(), asyncio.Event()
    found: dict[str, list[float]] = {"known": [], "back": []}
    async with AsyncExitStack() as stack:
        api = await KubeClient.connect()
        stack.push_async_callback(api.aclose)
        remotes = await stack.enter_async_context(other_node(memory / "a", cable))
        node = await stack.enter_async_context(importer(memory / "b", disk, api, remotes, 0))

        async def restore(claim: ClaimRef) -> ClaimRecord | None:
            record = await node.preparer.restore(claim)
            whole.set()
            return record

        def on_lost(cause: Cause) -> None:
            lost.set()

        supervisor = Supervisor(
            node.preparer.losses,
            restore,
            node.events,
            answers=lambda claim: node.dialler.answers_for(node.records.get(claim.uid)),
            random=random.random,
            pauses=Pauses(stable=STABLE_SECONDS),
            on_lost=on_lost,
        )
        links = LinkWatch(lambda: NetlinkEnds(PORT))
        links.listen(supervisor.link_ended)
        for work in (links.run(), supervisor.run()):
            stack.callback(asyncio.create_task(work).cancel)
        await node.preparer.prepare(ref)
        for _ in range(count):
            await asyncio.sleep(STABLE_SECONDS + 1)
            found["known"].append(await _until(lost, cable.pull))
            await asyncio.sleep(random.uniform(*AWAY_SECONDS))
            found["back"].append(await _until(whole, cable.plug))
        await node.preparer.unprepare(ref)
    return found


async def _until(event: asyncio.Event, act: Callable[[], None]) -> float:
    """Seconds from an act until the event."""
    event.clear()
    act()
    start = time.monotonic()
    async with asyncio.timeout(LIMIT_SECONDS):
        await event.wait()
    return time.monotonic() - start


if __name__ == "__main__":
    disk, memory, namespace, number, named = sys.argv[1:]
    name, uid = named.split("=", 1)
    claim = ClaimRef(namespace, name, ClaimUid(uid))
    print(json.dumps(asyncio.run(rounds(Path(disk), Path(memory), claim, int(number)))))
