# SPDX-License-Identifier: Apache-2.0
"""Dials an exporter, authenticates it and asks it for a device.

Owns the connection until take_socket(): from then on its next byte belongs to the kernel. Must
not touch vhci (attach.py does). Plain links only when the caller says so.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from usbdra.errors import ConfigError, IdentityChanged
from usbdra.importer.answers import error_of
from usbdra.tracing import spans
from usbdra.tracing.spans import Kind
from usbdra.transport import handshake, ktls, sockets
from usbdra.transport.ktls import Encryption, KernelTls, Role
from usbdra.transport.sockets import LinkTimeouts
from usbdra.transport.tls import Contexts, PeerCertificate
from usbdra.types import BusId, RemoteDevice
from usbdra.usbip import session, wire
from usbdra.usbip.extension import (
    ClaimRef,
    GrantReply,
    GrantRequest,
    Inventory,
    InventoryRequest,
)
from usbdra.usbip.fields import clean_text
from usbdra.usbip.session import Answer, Reading

Progress = Callable[[str, float], None]
"""Called when a phase (connect, tls or clear, authorise) is over, with the seconds it took."""

_T = TypeVar("_T")


@spans.spanned("dial")
async def dial(
    host: str,
    port: int,
    *,
    identity: Contexts | None,
    expect: str | None = None,
    plain: bool = False,
    encryption: Encryption = Encryption.REQUIRED,
    timeouts: LinkTimeouts | None = None,
    progress: Progress | None = None,
    kernel: KernelTls | None = None,
) -> Link:
    """Connect to an exporter; the caller closes the link.

    `expect` is the node or host its certificate must name, by default `host`. `encryption` is
    settled with the peer. `plain` with no identity dials a stock peer, where nobody proves
    anything. `kernel` is for tests. Raises ConfigError, Unreachable, PeerTimeout,
    NotAuthenticated, EncryptionUnavailable, ProtocolError, LinkError.
    """
    if (identity is None) is not plain:
        raise ConfigError("a certificate is needed to dial, or plain mode on purpose")
    timeouts = timeouts or LinkTimeouts()
    if identity is not None:
        kernel = kernel or ktls.native()
        protocols = ktls.protocols(encryption, kernel)
    phases = _Phases(progress)
    sock = await sockets.connect(host, port, timeouts)
    try:
        spans.phase("connect", phases.done("connect"))
        peer, encrypted = None, False
        if identity is not None and kernel is not None:
            secured = await handshake.secure(
                sock,
                Role.CLIENT,
                identity.context(Role.CLIENT),
                deadline=sockets.deadline_in(timeouts.handshake),
                kernel=kernel,
                expect=expect or host,
                protocols=protocols,
            )
            peer, encrypted = secured.certificate, secured.encrypted
            spans.phase("tls", phases.done("tls" if encrypted else "clear"))
    except BaseException:
        sock.close()
        raise
    return Link(sock, host, peer, encrypted, timeouts, phases)


class _Phases:
    """Times each phase from the end of the one before."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._last = asyncio.get_running_loop().time()
        self.timings: list[tuple[str, float]] = []

    def begin(self) -> None:
        """What passed since the last phase was the caller's own time."""
        self._last = asyncio.get_running_loop().time()

    def done(self, phase: str) -> float:
        """The phase is over, after so many seconds."""
        now = asyncio.get_running_loop().time()
        took, self._last = now - self._last, now
        self.timings.append((phase, took))
        if self._progress is not None:
            self._progress(phase, took)
        return took


class Link:
    """A connection to an exporter. `peer` is None on a plain link; `encrypted` by the kernel.

    A usbdra exporter answers several requests on one link, a stock one a single request. All
    requests raise UsbdraError as answers.py maps it, or LinkError; after a LinkError the link
    is of no further use.
    """

    def __init__(
        self,
        sock: socket.socket,
        host: str,
        peer: PeerCertificate | None,
        encrypted: bool,
        timeouts: LinkTimeouts,
        phases: _Phases,
    ) -> None:
        self._sock: socket.socket | None = sock
        self._timeouts = timeouts
        self._phases = phases
        self.host = host
        self.peer = peer
        self.encrypted = encrypted

    @property
    def timings(self) -> tuple[tuple[str, float], ...]:
        """(phase, seconds) so far: connect, tls (`clear` on a link in clear), authorise and the
        exporter's own share."""
        return tuple(self._phases.timings)

    async def inventory(self) -> Sequence[RemoteDevice]:
        """What the exporter offers, with names and what is taken. Authenticated links only."""
        self._require_authenticated("inventory")
        return await self._ask(*session.request_inventory(), device="")

    async def visit(self, request: InventoryRequest) -> Inventory:
        """The same, with what a cluster's controller brings a host and takes from it; as long
        as `request.wait` later where it asks for news."""
        self._require_authenticated("inventory")
        return await self._ask(*session.request_visit(request), device="", wait=request.wait)

    async def devlist(self) -> Sequence[RemoteDevice]:
        """What the exporter offers, as stock peers tell it: free devices without names."""
        return await self._ask(*session.request_devlist(), device="")

    async def grant(
        self, device: str, *, claim: ClaimRef | None = None, holder: str = ""
    ) -> RemoteDevice:
        """Ask for a device by name, bus id or serial; then take_socket(). Authenticated links only.

        Raises PeerRefused, DeviceBusy, NotFound, IdentityChanged.
        """
        self._require_authenticated("grant")
        self._phases.begin()
        with spans.span("grant", Kind.CLIENT, device=device):
            request = GrantRequest(device, claim, holder, spans.traceparent())
            reply: GrantReply = await self._ask(*session.request_grant(request), device=device)
        self._same(device, (reply.device.name, reply.device.busid, reply.device.serial))
        self._phases.done("authorise")
        self._phases.timings.extend((f"exporter.{name}", s) for name, s in reply.timings)
        return reply.device

    async def import_stock(self, busid: BusId) -> RemoteDevice:
        """Ask for a device the stock way; then take_socket(). Raises as grant()."""
        self._phases.begin()
        if not wire.is_busid(busid):
            raise ConfigError(f"{clean_text(busid)!r} is not a bus id like 1-1.4")
        device = await self._ask(*session.request_import(busid), device=busid)
        self._same(busid, (device.busid,))
        self._phases.done("authorise")
        return device

    def take_socket(self) -> socket.socket:
        """The connection, for the kernel; the caller closes it, the link is over."""
        sock = self._live()
        self._sock = None
        return sock

    def close(self) -> None:
        """End the connection, unless it was taken. Idempotent."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    async def __aenter__(self) -> Link:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.close()

    async def _ask(
        self, message: bytes, reading: Reading[Answer[_T]], *, device: str, wait: int = 0
    ) -> _T:
        sock = self._live()
        deadline = sockets.deadline_in(self._timeouts.answer + wait)
        what = f"the answer of {self.host}"
        await sockets.write_all(sock, message, deadline, f"request to {self.host}")
        while needed := reading.bytes_needed:
            reading.feed(await sockets.read_exactly(sock, needed, deadline, what))
        answer = reading.result
        if answer.value is None:
            raise error_of(answer.status, answer.refusal, self.host, device)
        return answer.value

    def _same(self, asked: str, answered: tuple[Any, ...]) -> None:
        if asked not in answered:
            self.close()
            got = " or ".join(str(one) for one in answered if one)
            raise IdentityChanged(f"{self.host} was asked for device {asked} and gave {got}")

    def _require_authenticated(self, what: str) -> None:
        if self.peer is None:
            raise ConfigError(
                f"{what} needs an authenticated link; stock peers know devlist and import"
            )

    def _live(self) -> socket.socket:
        if self._sock is None:
            raise RuntimeError("the link is over")
        return self._sock
