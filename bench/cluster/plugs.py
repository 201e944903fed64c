# SPDX-License-Identifier: Apache-2.0
"""Runs on the made-up machine of an agent: plugs devices in, and waits for them in the API.

    python -m bench.cluster.plugs ROOT ROUNDS TOGETHER PAUSE

Each round plugs TOGETHER devices into the made-up machine at ROOT and sends their uevents; a
sample is the seconds from the first event to the moment a watch of the API server shows the last
of them in a ResourceSlice. After a round nothing happens for PAUSE seconds. Prints JSON: `seconds`,
and `writes`, how many changes of slices the watch showed meanwhile. It is a process of its own so
that nothing but the agent's own work, and the API server's, is in the times.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

from bench.cluster.machine import Uevents
from tests.fakes.sysfs import FakeDevice, SysTree
from usbdra.kube.client import KubeClient
from usbdra.kube.types import RESOURCE_SLICE, Object

FIRST_BUS = 100
PORTS = 16
LIMIT_SECONDS = 60.0


class Api:
    """What the slices hold, as a watch tells it."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._serials: dict[str, set[str]] = {}
        self._news = asyncio.Event()
        self.writes = 0

    async def follow(self) -> None:
        """Until cancelled; the watch lasts longer than any run."""
        listed = await self._client.list(RESOURCE_SLICE)
        for item in listed["items"]:
            self._take("ADDED", item)
        version = listed["metadata"]["resourceVersion"]
        watch: AsyncIterator[tuple[str, Object]] = self._client.watch(
            RESOURCE_SLICE, version, seconds=3600
        )
        async with aclosing(watch) as events:  # type: ignore[type-var]
            async for kind, item in events:
                if kind != "BOOKMARK":
                    self._take(kind, item)

    async def shows(self, serials: set[str], there: bool) -> float:
        """Wait until all (or none) of the serials are in slices; the time it was seen."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                found = serials & set().union(*self._serials.values())
                if found == (serials if there else set()):
                    return time.perf_counter()
                self._news.clear()
                await self._news.wait()

    def _take(self, kind: str, item: Object) -> None:
        values = (
            value.get("string")
            for device in item["spec"].get("devices") or ()
            for value in (device.get("attributes") or {}).values()
        )
        gone = kind == "DELETED"
        self._serials[item["metadata"]["name"]] = set() if gone else {v for v in values if v}
        self.writes += 1
        self._news.set()


async def plug(root: Path, client: KubeClient, rounds: int, together: int, pause: float) -> Object:
    """See above."""
    api, events = Api(client), Uevents()
    following = asyncio.create_task(api.follow())
    controller = SysTree(root).controller("0000:64:14.0")
    hub = controller.root_hub(FIRST_BUS + len(list(controller.path.iterdir())))
    events.device("add", hub)
    inside: list[FakeDevice] = []
    serials: list[str] = []
    seconds, writes = [], 0
    try:
        for number in range(rounds):
            await asyncio.sleep(pause)
            if len(inside) + together > PORTS:
                await pull(api, events, inside, set(serials))
                await asyncio.sleep(pause)
            new = [f"PLUG{number:04d}X{index}" for index in range(together)]
            devices = [hub.plug(len(inside) + i + 1, serial=s.encode()) for i, s in enumerate(new)]
            before, started = api.writes, time.perf_counter()
            for device in devices:
                events.device("add", device)
            seconds.append(await api.shows(set(new), there=True) - started)
            writes += api.writes - before
            inside += devices
            serials += new
        return {"seconds": seconds, "writes": writes}
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        pull_now(events, inside)
        events.close()


async def pull(api: Api, events: Uevents, inside: list[FakeDevice], serials: set[str]) -> None:
    """Pull all devices out and wait until the API shows none of them."""
    pull_now(events, inside)
    inside.clear()
    await api.shows(serials, there=False)


def pull_now(events: Uevents, devices: list[FakeDevice]) -> None:
    """Pull devices out, the last first."""
    for device in reversed(devices):
        device.unplug()
        events.device("remove", device)


async def main() -> None:
    """Entry point."""
    root, rounds, together, pause = sys.argv[1:]
    client = await KubeClient.connect()
    try:
        print(json.dumps(await plug(Path(root), client, int(rounds), int(together), float(pause))))
    finally:
        await client.aclose()


if __name__ == "__main__":
    asyncio.run(main())
