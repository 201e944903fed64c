# SPDX-License-Identifier: Apache-2.0
"""One Prepare is one trace: importing agent, exporter's process and exporting agent, each sending
to a collector by itself."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.contract.exporting import NAME, World, running
from tests.contract.importing import REF, Importing, importing
from tests.fakes.exporter import EMPTY
from tests.fakes.traces import Collector
from usbdra.errors import PeerRefused
from usbdra.tracing.otel import OtelTracer
from usbdra.tracing.process import traced


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made


@asynccontextmanager
async def nodes(
    tmp_path: Path,
    collector: Collector,
    *,
    grants: int = 1,
    exporter: bool = True,
    importer: bool = True,
) -> AsyncIterator[tuple[World, Importing]]:
    """Both nodes; at the end each has told the collector all it has. Who traces is chosen, and
    how often the exporter is asked."""
    variables = collector.environment if exporter else EMPTY
    ours = os.environ if importer else EMPTY
    with traced("agent-a", os.environ) as a, traced("agent-b", ours) as b:
        async with running(tmp_path / "a", tracer=a, variables=variables) as world:
            async with importing(tmp_path / "b", world.exporter.port, b) as node:
                yield world, node
                await node.told()
            await world.given_back()
            if exporter:  # its grant is the last that it ends
                await collector.until("usbdra-exporter", "grant", grants)
        for tracer in (a, b):
            if isinstance(tracer, OtelTracer):
                tracer.flush()


async def test_one_prepare_is_one_trace(tmp_path: Path, collector: Collector) -> None:
    async with nodes(tmp_path, collector) as (world, node):
        await node.preparer.prepare(REF)
        await node.told()
        await node.preparer.unprepare(REF)
        lines = [json.loads(line) for line in world.exporter.log.splitlines()]
    prepare, unprepare = (
        next(step for step in collector.all if step.name == name)
        for name in ("NodePrepareResources", "NodeUnprepareResources")
    )
    assert collector.traces() == {prepare.trace, unprepare.trace}
    assert prepare.trace != unprepare.trace
    (granted,) = (line for line in lines if line["message"] == "device granted")
    assert granted["trace_id"] == prepare.trace
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


async def test_an_exporter_that_does_not_trace_passes_a_trace_on(
    tmp_path: Path, collector: Collector
) -> None:
    async with nodes(tmp_path, collector, exporter=False) as (world, node):
        await node.preparer.prepare(REF)
        await node.preparer.unprepare(REF)
        assert "opentelemetry" not in world.exporter.log
    assert collector.path(collector.named("bind")) == [
        "agent-b NodePrepareResources",
        "agent-b take",
        "agent-b grant",
        "agent-a acquire",
        "agent-a bind",
    ]
    assert collector.path(collector.named("begin-session"))[-3:] == [
        "agent-b grant",
        "agent-a hand-over",
        "agent-a begin-session",
    ]


async def test_a_peer_without_traces_is_served_and_traced_from_where_it_comes_in(
    tmp_path: Path, collector: Collector
) -> None:
    """As one of an earlier version, whose request has no such field."""
    async with nodes(tmp_path, collector, importer=False) as (_, node):
        await node.preparer.prepare(REF)
        await node.preparer.unprepare(REF)
    assert collector.path(collector.named("bind")) == [
        "usbdra-exporter grant",
        "usbdra-exporter acquire",
        "agent-a acquire",
        "agent-a bind",
    ]
    assert collector.named("begin-session").trace == collector.named("bind").trace
    assert len(collector.traces()) == 1


async def test_a_refusal_is_a_trace_that_ends_where_it_was_refused(
    tmp_path: Path, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    async with nodes(tmp_path, collector) as (world, node):
        world.nodes["node-b"] = {"10.0.0.2"}
        with pytest.raises(PeerRefused):
            await node.preparer.prepare(REF)
    caplog.clear()  # its records keep the error, whose frames keep the keys of links
    said = {f"{one.service} {one.name}": one.attributes.get("error.type") for one in collector.all}
    assert {span: word for span, word in said.items() if word} == {
        "agent-b NodePrepareResources": "PeerRefused",
        "agent-b take": "PeerRefused",
        "agent-b grant": "PeerRefused",
        "usbdra-exporter grant": "Refused",
        "usbdra-exporter acquire": "Refused",
        "agent-a acquire": "Refused",
        "agent-a vouch": "Refused",
    }
    assert len(collector.traces()) == 1
    assert "10.0.0.2" not in str(collector.all)


async def test_a_device_that_is_attached_again_is_a_trace_of_its_own(
    tmp_path: Path, collector: Collector
) -> None:
    async with nodes(tmp_path, collector, grants=2) as (world, node):
        (device,) = (await node.preparer.prepare(REF)).devices
        assert device.held is not None
        assert device.held.port is not None
        node.kernel.vhci.lose_link(device.held.port)
        await world.given_back()
        await node.preparer.restore(REF)
        await node.preparer.unprepare(REF)
    root = next(step for step in collector.all if step.name == "Reattach")
    assert root.attributes["usbdra.device"] == NAME
    again = [step for step in collector.all if step.trace == root.trace]
    assert {step.service for step in again} == {"agent-a", "agent-b", "usbdra-exporter"}
    (bind,) = (step for step in again if step.name == "bind")
    assert collector.path(bind)[:3] == ["agent-b Reattach", "agent-b take", "agent-b grant"]
