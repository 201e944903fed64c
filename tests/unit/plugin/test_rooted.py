# SPDX-License-Identifier: Apache-2.0
"""What the plugin's own traces say of a claim, whatever becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.fakes.traces import Kept
from usbdra.errors import AttachFailed
from usbdra.tracing.otel import OtelTracer

from .claims import claim, local_claim, remote_claim, result
from .world import Agent, World


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def agent(world: World, kept: Kept) -> Iterator[Agent]:
    tracer = OtelTracer("b", kept)
    made = world.agent()
    made.preparer.tracer = tracer
    yield made
    tracer.close()


def told(agent: Agent, kept: Kept) -> list[str]:
    """Names of all spans, in the order they began."""
    tracer = agent.preparer.tracer
    assert isinstance(tracer, OtelTracer)
    tracer.flush()
    return [step.name for step in sorted(kept.all, key=lambda step: step.start)]


async def test_a_device_of_this_node(world: World, agent: Agent, kept: Kept) -> None:
    (ref,) = world.add(local_claim())
    await agent.preparer.prepare(ref)
    await agent.preparer.unprepare(ref)
    assert told(agent, kept) == [
        *("NodePrepareResources", "read-claim", "plan", "take", "record", "write-files", "record"),
        *("NodeUnprepareResources", "record", "remove-files", "release", "forget"),
    ]
    assert kept.named("take").attributes == {
        "usbdra.device": "mouse",
        "usbdra.node": "b",
        "usbdra.route": "direct",
    }
    assert kept.named("NodeUnprepareResources").attributes["usbdra.result"] == "ok"


async def test_a_failed_prepare_shows_what_it_took_back(
    world: World, agent: Agent, kept: Kept
) -> None:
    (ref,) = world.add(remote_claim())
    agent.attacher.failures["stick"] = AttachFailed("the device did not answer: secret")
    with pytest.raises(AttachFailed):
        await agent.preparer.prepare(ref)
    names = told(agent, kept)
    assert names[:4] == ["NodePrepareResources", "read-claim", "plan", "take"]
    assert names[-1] == "forget"
    root = kept.named("NodePrepareResources")
    assert root.attributes == {
        "usbdra.claim": f"{ref.namespace}/{ref.name}",
        "usbdra.claim_uid": ref.uid,
        "error.type": "AttachFailed",
    }
    assert kept.named("take").attributes["error.type"] == "AttachFailed"
    assert len(kept.traces()) == 1


async def test_claims_side_by_side_are_traces_side_by_side(
    world: World, agent: Agent, kept: Kept
) -> None:
    one = remote_claim()
    other = claim(
        result("usb", "usb-a", "camera"),
        result("link", "usblink-b", "vhci-super"),
        name="other",
        uid="uid-2",
    )
    refs = world.add(one, other)
    await asyncio.gather(*(agent.preparer.prepare(ref) for ref in refs))
    told(agent, kept)
    roots = [step for step in kept.all if step.name == "NodePrepareResources"]
    assert len(kept.traces()) == len(roots) == 2
    for root in roots:
        (take,) = (s for s in kept.all if s.name == "take" and s.trace == root.trace)
        assert take.attributes["usbdra.device"] == root.attributes["usbdra.device"]
