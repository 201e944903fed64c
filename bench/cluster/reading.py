# SPDX-License-Identifier: Apache-2.0
"""Runs on the made-up machine of an agent: how long one read of another node's slice takes.

    python -m bench.cluster.reading ROUNDS

As a list of that node's slices by their label, and by the slice's name, in turns, while something
else in the cluster is written each 20 ms, which in every real one something is. Prints JSON, a list
of seconds for each way.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime

from bench.cluster.pair import EXPORTER
from tests.cluster.driver import DRIVER, GROUP
from tests.unit.slices.samples import offer
from usbdra.events import event_body, event_name
from usbdra.kube import errors
from usbdra.kube.client import KubeClient
from usbdra.kube.types import EVENT, NODE, RESOURCE_SLICE
from usbdra.slices.build import SliceOptions, build
from usbdra.slices.publish import Owner
from usbdra.types import Hub

WRITE_SECONDS = 0.02
PAUSE_SECONDS = 0.05
"""Between two rounds, in which something is written in any case."""


async def write(api: KubeClient) -> None:
    """Events about nothing in particular, for ever."""
    while True:
        body = event_body(
            {"apiVersion": "v1", "kind": "Node", "name": EXPORTER},
            name=event_name(),
            at=datetime.now(UTC),
            reporter=(DRIVER, "bench"),
            action="Bench",
            reason="Bench",
            note="",
            warning=False,
        )
        await api.create(EVENT, body, body["metadata"]["namespace"])
        await asyncio.sleep(WRITE_SECONDS)


async def read(rounds: int) -> dict[str, list[float]]:
    """See above."""
    api = await KubeClient.connect()
    owner = Owner(EXPORTER, (await api.get(NODE, EXPORTER))["metadata"]["uid"], DRIVER)
    made = build([offer()], {Hub.HIGH: 8, Hub.SUPER: 8}, SliceOptions(node=EXPORTER, group=GROUP))
    names = [item["metadata"]["name"] for item in made]
    for item in made:
        with suppress(errors.ApiConflict):  # an agent of an earlier benchmark left its own
            await api.create(RESOURCE_SLICE, owner.own(item))
    writing = asyncio.create_task(write(api))
    took: dict[str, list[float]] = {"list": [], "name": []}
    try:
        for _ in range(rounds):
            await asyncio.sleep(PAUSE_SECONDS)
            marks = [time.monotonic()]
            await api.list(RESOURCE_SLICE, labels=owner.selector)
            marks.append(time.monotonic())
            await api.get(RESOURCE_SLICE, names[0])
            marks.append(time.monotonic())
            took["list"].append(marks[1] - marks[0])
            took["name"].append(marks[2] - marks[1])
    finally:
        writing.cancel()
        for name in names:
            await api.delete(RESOURCE_SLICE, name)
        await api.aclose()
    return took


if __name__ == "__main__":
    print(json.dumps(asyncio.run(read(int(sys.argv[1])))))
