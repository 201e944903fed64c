# SPDX-License-Identifier: Apache-2.0
"""The controller's link to one host outside the cluster, kept while the host has nothing to tell.

Owns that link and what the next request brings: CAs, a certificate that was asked for, sessions
that are over, a reset. A host whose answers have an edition answers the next request when it has
news, so a plug is told at once; one without (an older program) is asked by the clock. Must not
publish.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from usbdra.controller.outsidesettings import OutsideSettings
from usbdra.errors import LinkError, Refused, Unreachable
from usbdra.importer.dial import Link, dial
from usbdra.kube.watch import Key
from usbdra.transport.sockets import LinkTimeouts
from usbdra.transport.tls import Contexts
from usbdra.types import RemoteDevice, outside_node
from usbdra.usbip.errands import Reset, ResetAnswer
from usbdra.usbip.extension import HeldSession, Inventory, InventoryRequest

WAIT_SECONDS = 60
"""For news, at the most: then CAs are brought and sessions looked at all the same."""
RESET_SECONDS = 25.0
"""For a host's answer to a reset: kubectl waits 30 s (cli/kubectl/assigning.py)."""
TIMEOUTS = LinkTimeouts(connect=3.0, keep_idle=3, keep_interval=2, keep_count=2, user=6.0)
"""A host that is gone is known to be so after 7 s, and after two dials, 15 s in all, told."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a host answered: its devices, until when its certificate holds, and whether it tells
    of news by itself."""

    devices: Sequence[RemoteDevice]
    until: str = ""
    tells: bool = False


class Own(Contexts, Protocol):
    """The controller as a peer (controller/ownpeer.py)."""

    @property
    def bundle(self) -> str:
        """PEM of the CAs to believe."""

    async def refresh(self) -> None:
        """Have a certificate to show. Raises UsbdraError."""

    def forget(self) -> None:
        """It was not believed."""

    def sign_next(self, host: str, request: str) -> str:
        """PEM of the next certificate of a host. Raises Refused."""


Over = Callable[[str, Sequence[HeldSession]], Awaitable[tuple[str, ...]]]
"""Keys of a host's sessions that are to be ended (controller/outsidesessions.py)."""


class OutsideLink:
    """One look at a time; `close` when no other follows. address: of the host."""

    def __init__(
        self, host: str, address: str, own: Own, over: Over, settings: OutsideSettings
    ) -> None:
        self._host = host
        self._address = address
        self._own = own
        self._find_over = over
        self._settings = settings
        self._link: Link | None = None
        self._edition = ""
        self._certificate = ""
        self._over: tuple[str, ...] = ()
        self._held: Sequence[HeldSession] = ()
        self._reset: tuple[Reset, asyncio.Future[ResetAnswer]] | None = None
        self._urgent = asyncio.Event()

    async def look(self) -> Seen:
        """What the host has; where it tells of news, as soon as that is not what it said last.
        Raises UsbdraError."""
        await self._own.refresh()
        found = await self._over_kept_link()
        while found is None:
            found = await self._over_new_link()
        renewed = bool(self._certificate)
        self._edition, self._certificate = found.edition, ""
        if found.request:
            self._certificate = self._own.sign_next(self._host, found.request)
        self._held = found.sessions
        self._over = await self._find_over(self._host, self._held)
        until = self._link.peer.not_after if self._link and self._link.peer else ""
        if renewed or not found.edition:  # the next link shows the next certificate
            self.close()
        return Seen(found.devices, until, bool(found.edition))

    def ended(self, key: Key) -> None:
        """A claim or a node ("" for its namespace) is gone or has given up its devices."""
        if any(key in _stands_on(session) for session in self._held):
            self._urgent.set()

    async def reset(self, asked: Reset) -> ResetAnswer:
        """Have the host carry it out, with the next request, which is made now. One at a time.

        Raises Refused for a host that does not know resets, Unreachable.
        """
        waiting: asyncio.Future[ResetAnswer] = asyncio.get_running_loop().create_future()
        self._reset = (asked, waiting)
        self._urgent.set()
        try:
            async with asyncio.timeout(RESET_SECONDS):
                return await waiting
        except TimeoutError as error:
            raise Unreachable(f"host {self._host} does not answer") from error
        finally:
            self._reset = None

    def close(self) -> None:
        """End the link. Idempotent."""
        if self._link is not None:
            self._link.close()
            self._link = None

    async def _over_kept_link(self) -> Inventory | None:
        """None when there is no link any more: a host closes it after so many requests."""
        if self._link is None:
            return None
        try:
            return await self._ask(self._link)
        except LinkError:
            return None

    async def _over_new_link(self) -> Inventory | None:
        """None when there is something to bring at once. Raises UsbdraError."""
        try:
            self._link = await dial(
                self._address,
                self._settings.port,
                identity=self._own,
                expect=outside_node(self._host),
                encryption=self._settings.encryption,
                timeouts=TIMEOUTS,
            )
            return await self._ask(self._link)
        except LinkError:
            self._own.forget()
            # When it is back it is to say so at once, be there news or not.
            self._edition = ""
            raise

    async def _ask(self, link: Link) -> Inventory | None:
        """The answer; without one the link is over. None when a session ended meanwhile, or a reset
        was asked for: the host is not to hear of that with its own next news only."""
        asked = self._reset
        wait = WAIT_SECONDS if self._edition and not self._over and asked is None else 0
        request = InventoryRequest(
            self._own.bundle,
            self._certificate,
            self._over,
            self._edition if wait else "",
            wait,
            None if asked is None else asked[0],
        )
        found = None
        try:
            found = await self._answer(link, request)
        finally:
            if found is None:
                self.close()
        if found is not None and asked is not None:
            self._answered(*asked, found.reset)
        return found

    def _answered(
        self, asked: Reset, waiting: asyncio.Future[ResetAnswer], answer: ResetAnswer | None
    ) -> None:
        if waiting.done():
            return
        if answer is not None and answer.word == asked.word:
            waiting.set_result(answer)
        else:
            text = f"usbdra serve of host {self._host} is too old to reset devices"
            waiting.set_exception(Refused(text))

    async def _answer(self, link: Link, request: InventoryRequest) -> Inventory | None:
        answer = asyncio.create_task(link.visit(request))
        try:
            while not await self._is_there(answer):
                over = await self._find_over(self._host, self._held)
                if not set(over) <= set(request.over):
                    self._over = over
                    return None
                if self._reset is not None and request.reset is None:
                    return None
            return answer.result()
        finally:
            answer.cancel()
            await asyncio.gather(answer, return_exceptions=True)

    async def _is_there(self, answer: asyncio.Task[Inventory]) -> bool:
        """True with the answer, False when something may be urgent before it came."""
        urgent = asyncio.create_task(self._urgent.wait())
        try:
            await asyncio.wait((answer, urgent), return_when=asyncio.FIRST_COMPLETED)
        finally:
            urgent.cancel()
        if answer.done():
            return True
        self._urgent.clear()
        return False


def _stands_on(session: HeldSession) -> tuple[Key, Key]:
    """Keys of what a session must not outlive: its claim and its node."""
    return (session.claim.namespace, session.claim.name), ("", session.node)
