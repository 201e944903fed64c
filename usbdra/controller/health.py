# SPDX-License-Identifier: Apache-2.0
"""Answers the kubelet's HTTP probes: /livez and /readyz.

Owns the listener. `live` is answered by the process's own loop, so a stuck loop is not live;
`ready` says that the API server has answered since the start, as leader or in waiting. Reads one
request line of bounded length and gives away nothing but yes or no.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

_TIMEOUT = 5.0
_MAX_LINE = 1024


class HealthServer:
    """`checks`: path to a function that says yes or no. Port 0 lets the system choose."""

    def __init__(self, address: tuple[str, int], checks: Mapping[str, Callable[[], bool]]) -> None:
        self._address = address
        self._checks = checks
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port that is listened on. Only after `start`."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Listen. Raises OSError when the port is taken."""
        host, port = self._address
        self._server = await asyncio.start_server(self._answer, host or None, port, limit=_MAX_LINE)

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, ValueError):  # ValueError: a line beyond the limit
            async with asyncio.timeout(_TIMEOUT):
                words = (await reader.readline()).decode(errors="replace").split()
                check = self._checks.get(words[1]) if len(words) > 1 else None
                writer.write(_response(None if check is None else check()))
                await writer.drain()
        writer.close()


def _response(good: bool | None) -> bytes:
    line, body = {
        True: ("200 OK", "ok\n"),
        False: ("503 Service Unavailable", "not yet\n"),
        None: ("404 Not Found", "no such check\n"),
    }[good]
    head = f"HTTP/1.1 {line}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n{body}".encode()
