# SPDX-License-Identifier: Apache-2.0
"""One line of the audit log for each decision, with the facts that an auditor asks for."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.broker import STICK, FakeBroker
from tests.fakes.tcp import TcpPair
from usbdra.errors import DeviceBusy, ExportFailed, Refused, UsbdraError
from usbdra.exporter.broker import Broker, ClaimRef, GrantRequest, Peer
from usbdra.exporter.guard import GuardedBroker
from usbdra.exporter.rate import Bucket
from usbdra.types import ClaimUid, NodeName

B = Peer("10.0.0.2", 4242, NodeName("node-b"), True)
CLAIM = GrantRequest(STICK.name or "", ClaimRef("lab", "one", ClaimUid("u-1")))


@pytest.fixture
def link() -> Iterator[TcpPair]:
    with TcpPair() as pair:
        yield pair


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.INFO, "usbdra.audit")

    def facts() -> list[dict[str, Any]]:
        keys = (
            "decision", "node", "address", "encrypted", "namespace", "claim", "uid", "device",
            "busid", "session", "reason", "detail",
        )  # fmt: skip
        return [
            {key: one.__dict__[key] for key in keys if key in one.__dict__}
            for one in caplog.records
            if one.name == "usbdra.audit"
        ]

    return facts


ASKED = {
    "node": "node-b",
    "address": "10.0.0.2",
    "encrypted": True,
    "namespace": "lab",
    "claim": "one",
    "uid": "u-1",
    "device": STICK.name,
}
SESSION = {"device": STICK.name, "busid": STICK.busid, "session": "s1"}


async def test_granted_linked_given_up(broker: FakeBroker, link: TcpPair, lines: Any) -> None:
    results: list[str] = []
    guarded: Broker = GuardedBroker(broker, count=results.append)
    granted = await guarded.acquire(CLAIM, B, link.ours)
    await guarded.hand_over(granted, link.ours)
    await guarded.abandon(granted)
    assert results == ["ok"]
    assert lines() == [
        {"decision": "granted", **ASKED, **SESSION},
        {"decision": "linked", **SESSION},
        {"decision": "abandoned", **SESSION},
    ]


async def test_refusals_have_their_reason_and_are_told(
    broker: FakeBroker, link: TcpPair, lines: Any
) -> None:
    told: list[tuple[GrantRequest, Peer, UsbdraError]] = []
    results: list[str] = []
    guarded = GuardedBroker(broker, on_refused=lambda *one: told.append(one), count=results.append)
    broker.fail_acquire = DeviceBusy("stick", "claim lab/two")
    with pytest.raises(DeviceBusy):
        await guarded.acquire(CLAIM, B, link.ours)
    assert results == ["Busy"]
    detail = "device stick is in use by claim lab/two"
    assert lines() == [{"decision": "refused", **ASKED, "reason": "Busy", "detail": detail}]
    assert told == [(CLAIM, B, broker.fail_acquire)]


async def test_who_is_not_vouched_for_never_reaches_the_devices(
    broker: FakeBroker, link: TcpPair, lines: Any
) -> None:
    async def vouch(peer: Peer, sock: object) -> Peer:
        raise Refused("10.9.9.9 is no InternalIP of node node-b")

    guarded = GuardedBroker(broker, vouch=vouch)
    with pytest.raises(Refused):
        await guarded.acquire(CLAIM, B, link.ours)
    assert broker.calls == []
    (line,) = lines()
    assert (line["decision"], line["reason"]) == ("refused", "Refused")


async def test_the_line_has_the_peer_as_vouched_for(
    broker: FakeBroker, link: TcpPair, lines: Any
) -> None:
    seen = Peer("127.0.0.1", 7, NodeName("node-b"), False)

    async def vouch(peer: Peer, sock: object) -> Peer:
        return seen

    await GuardedBroker(broker, vouch=vouch).acquire(CLAIM, B, link.ours)
    assert broker.requests == [(CLAIM, seen)]
    (line,) = lines()
    assert (line["address"], line["encrypted"]) == ("127.0.0.1", False)


async def test_what_fails_later_is_told_too(broker: FakeBroker, link: TcpPair, lines: Any) -> None:
    guarded = GuardedBroker(broker)
    broker.fail_hand_over = ExportFailed("status stayed 1")
    granted = await guarded.acquire(CLAIM, B, link.ours)
    with pytest.raises(ExportFailed):
        await guarded.hand_over(granted, link.ours)
    broker.fail_acquire = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        await guarded.acquire(CLAIM, B, link.ours)
    assert [one["decision"] for one in lines()] == ["granted", "failed", "failed"]
    assert lines()[1] == {
        "decision": "failed", **SESSION, "reason": "ExportFailed", "detail": "status stayed 1"
    }  # fmt: skip


def test_a_bucket_lets_a_burst_through_and_then_a_rate() -> None:
    bucket = Bucket(2.0, 3)
    assert [bucket.take(100.0) for _ in range(4)] == [True, True, True, False]
    assert [bucket.take(100.6) for _ in range(2)] == [True, False]
    assert [bucket.take(999.0) for _ in range(4)] == [True, True, True, False]
    assert not bucket.take(998.0)  # a clock that goes back gives nothing
