# SPDX-License-Identifier: Apache-2.0
"""Answers `GET /metrics` over HTTP/1.1, with or without TLS.

Owns the listener and its limits: bytes of a request, seconds, connections at once. Who may ask is
the caller's `allowed`. Nothing runs between two requests. Must not know what is counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from usbdra.metrics.meters import CONTENT_TYPE

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)

MAX_REQUEST = 16 * 1024
"""Bytes of a request's head; a service account's token is some 1 KiB."""
MAX_CONNECTIONS = 8
SECONDS = 15.0
_PAUSES = (1.0, 30.0)
_TEXTS = {
    401: ("Unauthorized", "a bearer token is wanted\n"),
    403: ("Forbidden", "get on the path /metrics is not allowed\n"),
    404: ("Not Found", "only /metrics is here\n"),
    405: ("Method Not Allowed", "only GET is answered\n"),
    429: ("Too Many Requests", "later\n"),
    503: ("Service Unavailable", "the API server was asked about the token and did not answer\n"),
}

Allowed = Callable[[str], Awaitable[int]]
"""Whether who shows this bearer token ("" for none) may read: 200, or the status to answer."""


async def anybody(token: str) -> int:
    """For a listener that only this host, or the pod network, reaches."""
    return 200


class MetricsServer:
    """`text` gives the body. Port 0 lets the system choose."""

    def __init__(
        self,
        address: tuple[str, int],
        text: Callable[[], Awaitable[bytes]],
        *,
        allowed: Allowed = anybody,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """tls: makes the context anew when the certificate may have changed; None for HTTP."""
        self._address = address
        self._text = text
        self._allowed = allowed
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()
        self._one = asyncio.Lock()
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port that is listened on. Only after `start`."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Listen. Raises OSError when the port is taken."""
        host, port = self._address
        context = self._context() if self._tls is not None else None
        self._server = await asyncio.start_server(
            self._accept, host or None, port, limit=MAX_REQUEST, ssl=context
        )

    async def stop(self) -> None:
        """Stop listening, and answering."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def run(self) -> None:
        """Listen until cancelled, as soon as the port is free: an older process may have it."""
        pause, longest = _PAUSES
        while True:
            try:
                await self.start()
                break
            except OSError as error:
                text = f"metrics are not served yet: {error}"
                log.warning("%s", text, extra={"once": text})
            await asyncio.sleep(pause)
            pause = min(pause * 2, longest)
        try:
            facts = {"address": self._address[0], "port": self.port, "tls": self._tls is not None}
            log.info("metrics are served", extra=facts)
            await asyncio.Event().wait()
        finally:
            await self.stop()

    def _context(self) -> ssl.SSLContext:
        """A context that is exchanged at each handshake: certificates live for hours."""
        make = self._tls
        assert make is not None

        def exchange(connection: ssl.SSLObject, name: str | None, old: ssl.SSLContext) -> None:
            connection.context = make()

        context = make()
        context.sni_callback = exchange
        return context

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # ValueError: a line beyond the limit. The rest: whoever asked is gone.
            with suppress(OSError, TimeoutError, ValueError, EOFError):
                async with asyncio.timeout(SECONDS):
                    writer.write(await self._answer(reader))
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        finally:
            writer.transport.abort()
            await asyncio.sleep(0)  # its descriptor is closed in the loop's next turn

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, _, rest = head[0].partition(" ")
        if rest.partition(" ")[0].partition("?")[0] != "/metrics":
            return _response(404)
        if method != "GET":
            return _response(405)
        status = await self._allowed(_token(head[1:]))
        if status != 200:
            return _response(status)
        async with self._one:  # each question looks things up: one at a time
            return _head("200 OK", CONTENT_TYPE, body := await self._text()) + body


def _token(lines: list[str]) -> str:
    """The bearer token of a request's header lines; "" when it shows none."""
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip().lower() == "authorization":
            kind, _, token = value.strip().partition(" ")
            return token.strip() if kind.lower() == "bearer" else ""
    return ""


def _response(status: int) -> bytes:
    word, text = _TEXTS[status]
    body = text.encode()
    extra = "WWW-Authenticate: Bearer\r\n" if status == 401 else ""
    return _head(f"{status} {word}", "text/plain; charset=utf-8", body, extra) + body


def _head(status: str, content: str, body: bytes, extra: str = "") -> bytes:
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: {content}\r\nContent-Length: {len(body)}\r\n"
        f"{extra}Connection: close\r\n\r\n"
    ).encode()
