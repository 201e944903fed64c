# SPDX-License-Identifier: Apache-2.0
"""Runs on the made-up machine of an agent: reads an object from the API server, again and again.

    python -m bench.cluster.reads COUNT

A Prepare of a remote device waits for two such reads, one on each node. Prints JSON, the seconds of
each read; the first, which makes the connection, is left out.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from bench.cluster.machine import NODE as NAME
from usbdra.kube.client import KubeClient
from usbdra.kube.types import NODE


async def read(count: int) -> list[float]:
    """See above."""
    client = await KubeClient.connect()
    seconds = []
    try:
        for _ in range(count + 1):
            started = time.perf_counter()
            await client.get(NODE, NAME)
            seconds.append(time.perf_counter() - started)
    finally:
        await client.aclose()
    return seconds[1:]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(read(int(sys.argv[1])))))
