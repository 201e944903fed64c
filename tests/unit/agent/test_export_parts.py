# SPDX-License-Identifier: Apache-2.0
"""Addresses of nodes and Events of refusals: what they ask of the API server, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.fakes.kube import FakeKube
from usbdra.agent import addresses
from usbdra.agent.addresses import NodeAddresses
from usbdra.agent.nodewatch import Seen
from usbdra.agent.refusals import RefusalEvents
from usbdra.errors import DeviceBusy, Refused, UsbdraError
from usbdra.exporter.broker import GrantRequest, Peer
from usbdra.kube import errors
from usbdra.kube.types import NODE, RESOURCE_CLAIM, Kind, Object
from usbdra.state.claims import ClaimRef
from usbdra.types import ClaimUid, NodeName
from usbdra.usbip.extension import ClaimRef as WireClaim

B = Peer("10.0.0.2", 4242, NodeName("b"), True)


class Api(FakeKube):
    """Counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    async def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object:
        self.reads.append(name)
        return await super().get(kind, name, namespace)


@pytest.fixture
def api() -> Api:
    one = Api()
    listed = [
        {"type": "Hostname", "address": "b"},
        {"type": "InternalIP", "address": "10.0.0.2"},
        {"type": "ExternalIP", "address": "203.0.113.2"},
        {"type": "InternalIP", "address": "fd00::2"},
    ]
    one.put(NODE, {"metadata": {"name": "b"}, "status": {"addresses": listed}})
    one.put(NODE, {"metadata": {"name": "new"}})
    one.put(RESOURCE_CLAIM, {"metadata": {"name": "c", "namespace": "lab", "uid": "u-1"}})
    return one


async def test_internal_addresses_and_no_others(api: Api) -> None:
    ask = NodeAddresses(api)
    assert await ask(NodeName("b")) == {"10.0.0.2", "fd00::2"}
    assert await ask(NodeName("new")) == set()
    with pytest.raises(Refused, match="node gone is not in the cluster"):
        await ask(NodeName("gone"))
    api.fail(errors.ApiUnavailable("get", 503, "", "away"))
    with pytest.raises(errors.ApiUnavailable):
        await ask(NodeName("other"))


async def test_an_attach_reads_the_node_once_in_a_while(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = NodeAddresses(api)
    for _ in range(5):
        await ask(NodeName("b"))
    assert api.reads == ["b"]
    monkeypatch.setattr(addresses, "SECONDS", 0.0)
    again = NodeAddresses(api)
    for _ in range(3):
        await again(NodeName("b"))
    assert api.reads == ["b"] * 4


async def test_a_node_that_is_watched_is_not_read(api: Api) -> None:
    stored = api.all(NODE)[0]
    seen: dict[str, Seen] = {"b": Seen(stored), "gone": Seen(None)}
    ask = NodeAddresses(api, seen.get)
    assert await ask(NodeName("b")) == {"10.0.0.2", "fd00::2"}
    await ask.require_same(NodeName("b"), stored["metadata"]["uid"])
    with pytest.raises(Refused, match="node gone is not in the cluster"):
        await ask(NodeName("gone"))
    assert api.reads == []
    # What a read found is no longer believed once the watch says otherwise.
    seen.clear()
    await ask(NodeName("b"))
    seen["b"] = Seen(None)
    with pytest.raises(Refused, match="node b is not in the cluster"):
        await ask(NodeName("b"))
    assert api.reads == ["b"]


Told = list[tuple[ClaimRef, str, str, bool]]


@asynccontextmanager
async def events(api: Api) -> AsyncIterator[tuple[RefusalEvents, Told]]:
    told: Told = []

    async def tell(ref: ClaimRef, reason: str, message: str, warning: bool) -> None:
        told.append((ref, reason, message, warning))

    one = RefusalEvents(api, NodeName("a"), tell)
    running = asyncio.create_task(one.run())
    yield one, told
    running.cancel()


def request(uid: str = "u-1") -> GrantRequest:
    return GrantRequest("stick", WireClaim("lab", "c", ClaimUid(uid)))


async def handled(one: RefusalEvents) -> None:
    while not one._waiting.empty():
        await asyncio.sleep(0)
    for _ in range(5):
        await asyncio.sleep(0)


async def test_an_event_says_who_was_refused_what_and_why(api: Api) -> None:
    async with events(api) as (one, told):
        one(request(), B, Refused("claim lab/c was given to node c, not to b"))
        await handled(one)
    (event,) = told
    assert event == (
        ClaimRef("lab", "c", ClaimUid("u-1")),
        "Refused",
        "node a did not give device stick to b: claim lab/c was given to node c, not to b",
        True,
    )


async def test_the_same_reason_is_told_once_and_another_at_once(api: Api) -> None:
    async with events(api) as (one, told):
        for number in range(5):
            one(request(), B, Refused(f"reason {number}"))
        one(request(), B, DeviceBusy("stick", "claim lab/d"))
        await handled(one)
    assert [reason for _, reason, _, _ in told] == ["Refused", "Busy"]


async def test_invented_claims_get_no_events(api: Api) -> None:
    """A claim of the right name and another uid, one that is not there, none at all."""
    async with events(api) as (one, told):
        one(request("old"), B, Refused("no"))
        nowhere = WireClaim("kube-system", "x", ClaimUid("u"))
        one(GrantRequest("stick", nowhere), B, Refused("no"))
        one(GrantRequest("stick"), B, Refused("no"))
        await handled(one)
    assert told == []
    assert api.reads == ["c", "x"]


async def test_a_flood_of_claims_costs_a_bounded_number_of_reads(api: Api) -> None:
    async with events(api) as (one, told):
        for number in range(500):
            one(request(f"u-{number}"), B, Refused("no"))
        await handled(one)
    assert len(api.reads) <= 21
    assert len(told) <= 1


async def test_an_api_that_is_away_loses_one_event_and_not_the_task(api: Api) -> None:
    async with events(api) as (one, told):
        api.fail(errors.ApiUnavailable("get", 503, "", "away"))
        one(request(), B, Refused("no"))
        await handled(one)
        api.fail(None)
        one(request(), B, UsbdraError("another"))
        await handled(one)
    assert [reason for _, reason, _, _ in told] == ["Failed"]
