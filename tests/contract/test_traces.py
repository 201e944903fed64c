# SPDX-License-Identifier: Apache-2.0
"""One Prepare is one trace: importing agent, exporter's process and exporting agent, each sending
to a collector by itself."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.contract.exporting import NAME, World, running
from tests.contract.importing import REF, Importing, importing
from tests.fakes.exporter import EMPTY
from tests.fakes.traces import Collector
from usbdra.tracing.process import traced


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made


@asynccontextmanager
async def nodes(
    tmp_path: Path, collector: Collector, *, exporter: bool = True, importer: bool = True
) -> AsyncIterator[tuple[World, Importing]]:
    """Both nodes; at the end each has told the collector all it has. Who traces is chosen."""
    variables = collector.environment if exporter else EMPTY
    ours = os.environ if importer else EMPTY
    with traced("agent-a", os.environ) as a, traced("agent-b", ours) as b:
        async with running(tmp_path / "a", tracer=a, variables=variables) as world:
            async with importing(tmp_path / "b", world.exporter.port, b) as node:
                yield world, node
                await node.told()
            await world.given_back()
            await world.exporter.stop()


async def test_one_prepare_is_one_trace(tmp_path: Path, collector: Collector) -> None:
    async with nodes(tmp_path, collector) as (_, node):
        await node.preparer.prepare(REF)
        await node.told()
        await node.preparer.unprepare(REF)
    prepare, unprepare = (
        next(step for step in collector.all if step.name == name)
        for name in ("NodePrepareResources", "NodeUnprepareResources")
    )
    assert collector.traces() == {prepare.trace, unprepare.trace}
    assert prepare.trace != unprepare.trace
    assert prepare.attributes == {
        "usbdra.claim": "lab/one",
        "usbdra.claim_uid": "u-1",
        "usbdra.device": NAME,
        "usbdra.node": "node-a",
        "usbdra.result": "ok",
    }
    ways = {" > ".join(collector.path(one)) for one in collector.all if one.trace == prepare.trace}
    root = "agent-b NodePrepareResources"
    taking = f"{root} > agent-b take"
    granting = f"{taking} > agent-b grant > usbdra-exporter grant"
    acquiring = f"{granting} > usbdra-exporter acquire > agent-a acquire"
    giving = f"{granting} > usbdra-exporter hand-over > agent-a hand-over"
    assert ways == {
        root,
        f"{root} > agent-b read-claim",
        f"{root} > agent-b dial",
        f"{root} > agent-b dial > agent-b connect",
        f"{root} > agent-b dial > agent-b tls",
        f"{root} > agent-b plan",
        taking,
        f"{taking} > agent-b grant",
        granting,
        f"{granting} > usbdra-exporter acquire",
        acquiring,
        f"{acquiring} > agent-a vouch",
        f"{acquiring} > agent-a bind",
        f"{granting} > usbdra-exporter hand-over",
        giving,
        f"{giving} > agent-a begin-session",
        f"{taking} > agent-b record",
        f"{taking} > agent-b attach",
        f"{taking} > agent-b identity",
        f"{taking} > agent-b enumerate",
        f"{taking} > agent-b settle",
        f"{root} > agent-b write-files",
        f"{root} > agent-b record",
        f"{root} > agent-b status",
    }
