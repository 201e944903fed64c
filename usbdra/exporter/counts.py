# SPDX-License-Identifier: Apache-2.0
"""The exporter's numbers, told to its agent: JSON on an abstract Unix socket of the pod's name.

Owns both ends. The exporter has no token to check who asks for metrics with, and what faces the
network must not see the tokens of those who do: so the agent asks here and serves both. An
abstract name belongs to the network namespace, which both containers share; each end makes sure
of the other's user. The agent takes numbers alone, of names that it knows.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, fields
from typing import Any

from usbdra.errors import NotAuthenticated, Unreachable
from usbdra.exporter.server import ServerStats
from usbdra.transport.packets import require_user

log = logging.getLogger(__name__)

MAX_BYTES = 4096
SECONDS = 2.0


def name_of(pod_uid: str) -> str:
    """The socket's name for a pod."""
    return f"usbdra-exporter-{pod_uid[:64]}"


class CountsServer:
    """Tells `stats()` to processes of user `uid` (the agent's)."""

    def __init__(self, name: str, uid: int, stats: Callable[[], ServerStats]) -> None:
        self._name = name
        self._uid = uid
        self._stats = stats
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen. Raises OSError when the name is taken."""
        self._server = await asyncio.start_unix_server(self._tell, f"\0{self._name}")

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _tell(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError):
            try:
                require_user(writer.get_extra_info("socket"), self._uid)
                writer.write(json.dumps(asdict(self._stats())).encode())
                async with asyncio.timeout(SECONDS):
                    await writer.drain()
            except NotAuthenticated as error:
                log.warning("numbers are not told: %s", error, extra={"once": str(error)})
        writer.close()


async def ask(name: str, uid: int) -> ServerStats:
    """The numbers of the exporter that listens under this name as user `uid`.

    Raises Unreachable when it does not answer, NotAuthenticated when it is somebody else.
    """
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(SECONDS):
            reader, writer = await asyncio.open_unix_connection(f"\0{name}")
            require_user(writer.get_extra_info("socket"), uid)
            return _read(json.loads(await _all(reader)))
    except (OSError, TimeoutError, ValueError, RecursionError) as error:
        text = str(error) or type(error).__name__
        raise Unreachable(f"the exporter does not tell its numbers: {text}") from error
    finally:
        if writer is not None:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def _all(reader: asyncio.StreamReader) -> bytes:
    """Everything up to the end. Raises ValueError for more than MAX_BYTES."""
    data = bytearray()
    while chunk := await reader.read(MAX_BYTES):
        data += chunk
        if len(data) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES} bytes")
    return bytes(data)


def _read(said: Any) -> ServerStats:
    if not isinstance(said, dict):
        raise ValueError("not an object")
    return ServerStats(**{field.name: _count(said, field.name) for field in fields(ServerStats)})


def _count(said: dict[str, Any], name: str) -> int:
    value = said.get(name)
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"{name} is no count")
    return value
