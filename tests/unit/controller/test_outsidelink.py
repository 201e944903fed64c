# SPDX-License-Identifier: Apache-2.0
"""The link to a host that tells of news: kept, given up for what is urgent, made again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.fakes.broker import STICK
from usbdra.controller import outsidelink
from usbdra.controller.outsidelink import WAIT_SECONDS, OutsideLink
from usbdra.controller.outsidesettings import OutsideSettings
from usbdra.errors import PeerClosed, Refused, Unreachable
from usbdra.transport.ktls import Role
from usbdra.transport.tls import TlsContext
from usbdra.types import ClaimUid
from usbdra.usbip.errands import Reset, ResetAnswer
from usbdra.usbip.extension import ClaimRef, HeldSession, Inventory, InventoryRequest

SESSION = HeldSession("k1", "stick", ClaimRef("lab", "one", ClaimUid("u1")), "node-b")


class Own:
    """See outsidelink.Own."""

    bundle = "CAs"

    def context(self, role: Role) -> TlsContext:
        raise AssertionError("nothing is dialled here")

    async def refresh(self) -> None:
        """There is a certificate."""

    def forget(self) -> None:
        """There is another."""

    def sign_next(self, host: str, request: str) -> str:
        return f"certificate of {host}"


class Network:
    """One host. What the test answers goes to the request that waits."""

    def __init__(self) -> None:
        self.links: list[Link] = []
        self.requests: list[InventoryRequest] = []
        self.answers: asyncio.Queue[Inventory | Exception] = asyncio.Queue()
        self.over: tuple[str, ...] = ()
        self.silent = False

    async def dial(self, address: str, port: int, **how: Any) -> Link:
        if self.silent:
            raise Unreachable(f"{address} does not answer")
        self.links.append(Link(self))
        return self.links[-1]

    async def find_over(self, host: str, sessions: Any) -> tuple[str, ...]:
        held = {one.key for one in sessions}
        return tuple(key for key in self.over if key in held)

    def link(self) -> OutsideLink:
        return OutsideLink("pi", "192.0.2.7", Own(), self.find_over, OutsideSettings())


class Link:
    peer = None

    def __init__(self, network: Network) -> None:
        self._network = network
        self.closed = False

    async def visit(self, request: InventoryRequest) -> Inventory:
        self._network.requests.append(request)
        answer = await self._network.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    made = Network()
    monkeypatch.setattr(outsidelink, "dial", made.dial)
    return made


async def test_the_next_answer_is_waited_for_on_the_same_link(network: Network) -> None:
    link = network.link()
    network.answers.put_nowait(Inventory((STICK,), edition="e-1"))
    assert (await link.look()).tells
    network.answers.put_nowait(Inventory((), edition="e-2"))
    assert (await link.look()).devices == ()
    assert network.requests == [
        InventoryRequest("CAs"),
        InventoryRequest("CAs", seen="e-1", wait=WAIT_SECONDS),
    ]
    assert len(network.links) == 1
    link.close()
    assert network.links[0].closed


async def test_an_older_host_is_asked_on_a_link_of_its_own_each_time(network: Network) -> None:
    link = network.link()
    for _ in range(2):
        network.answers.put_nowait(Inventory((STICK,)))
        assert not (await link.look()).tells
    assert network.requests == [InventoryRequest("CAs")] * 2
    assert [one.closed for one in network.links] == [True, True]


async def test_a_link_that_the_host_ended_is_made_again_by_the_same_look(network: Network) -> None:
    link = network.link()
    network.answers.put_nowait(Inventory((STICK,), edition="e-1"))
    await link.look()
    network.answers.put_nowait(PeerClosed("after many requests", 0, 0))
    network.answers.put_nowait(Inventory((), edition="e-2"))
    assert (await link.look()).devices == ()
    assert [one.closed for one in network.links] == [True, False]
    network.answers.put_nowait(PeerClosed("it was switched off", 0, 0))
    network.silent = True
    with pytest.raises(Unreachable):
        await link.look()
    network.silent = False
    network.answers.put_nowait(Inventory((), edition="e-2"))
    assert (await link.look()).devices == ()
    assert network.requests[-1] == InventoryRequest("CAs"), "it is back without news"


async def test_a_session_that_outlived_its_claim_is_told_of_at_once(network: Network) -> None:
    link = network.link()
    network.answers.put_nowait(Inventory((STICK,), sessions=(SESSION,), edition="e-1"))
    await link.look()
    looking = asyncio.create_task(link.look())
    while len(network.requests) < 2:
        await asyncio.sleep(0)
    network.over = ("k1",)
    link.ended(("lab", "another"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(network.requests) == 2, "nothing here stands on that claim"
    link.ended(("lab", "one"))
    while len(network.requests) < 3:
        await asyncio.sleep(0)
    assert network.links[0].closed
    assert network.requests[2] == InventoryRequest("CAs", over=("k1",))
    network.answers.put_nowait(Inventory((STICK,), edition="e-2"))
    assert (await looking).devices == (STICK,)


async def test_a_claim_that_only_changed_keeps_its_session_and_the_link(network: Network) -> None:
    link = network.link()
    network.answers.put_nowait(Inventory((STICK,), sessions=(SESSION,), edition="e-1"))
    await link.look()
    looking = asyncio.create_task(link.look())
    link.ended(("", "node-b"))
    for _ in range(20):
        await asyncio.sleep(0)
    network.answers.put_nowait(Inventory((), edition="e-2"))
    await looking
    assert len(network.links) == 1


async def test_a_link_after_a_certificate_was_brought_shows_it(network: Network) -> None:
    link = network.link()
    network.answers.put_nowait(Inventory((), "a request", edition="e-1"))
    await link.look()
    network.answers.put_nowait(Inventory((), edition="e-2"))
    await link.look()
    assert network.requests[1].certificate == "certificate of pi"
    assert network.links[0].closed
    network.answers.put_nowait(Inventory((), edition="e-3"))
    await link.look()
    assert network.requests[2] == InventoryRequest("CAs", seen="e-2", wait=WAIT_SECONDS)


async def test_a_reset_is_not_kept_for_the_hosts_next_news(network: Network) -> None:
    link = network.link()
    network.answers.put_nowait(Inventory((STICK,), edition="e-1"))
    await link.look()
    looking = asyncio.create_task(link.look())
    while len(network.requests) < 2:
        await asyncio.sleep(0)
    asked, answer = Reset("stick", "now"), ResetAnswer("now", "Reset", "done")
    resetting = asyncio.create_task(link.reset(asked))
    while len(network.requests) < 3:
        await asyncio.sleep(0)
    assert network.requests[2] == InventoryRequest("CAs", reset=asked)
    network.answers.put_nowait(Inventory((STICK,), edition="e-1", reset=answer))
    assert await resetting == answer
    assert (await looking).devices == (STICK,)
    network.answers.put_nowait(Inventory((STICK,), edition="e-2"))
    await link.look()
    assert network.requests[3] == InventoryRequest("CAs", seen="e-1", wait=WAIT_SECONDS)


@pytest.mark.parametrize("answer", [None, ResetAnswer("before", "Reset", "done")])
async def test_a_host_that_knows_no_resets_is_too_old(
    network: Network, answer: ResetAnswer | None
) -> None:
    link = network.link()
    resetting = asyncio.create_task(link.reset(Reset("stick", "now")))
    await asyncio.sleep(0)
    network.answers.put_nowait(Inventory((STICK,), reset=answer))
    await link.look()
    with pytest.raises(Refused, match="usbdra serve of host pi is too old to reset devices"):
        await resetting


async def test_a_host_that_is_silent_resets_nothing(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outsidelink, "RESET_SECONDS", 0.01)
    link = network.link()
    with pytest.raises(Unreachable, match="host pi does not answer"):
        await link.reset(Reset("stick", "now"))
    network.answers.put_nowait(Inventory((STICK,)))
    await link.look()
    assert network.requests == [InventoryRequest("CAs")]
