# SPDX-License-Identifier: Apache-2.0
"""The exporter's numbers on their way to the agent: who tells, who asks, and what is believed."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from usbdra.errors import NotAuthenticated, Unreachable
from usbdra.exporter.counts import CountsServer, ask, name_of
from usbdra.exporter.server import ServerStats

UID = os.geteuid()
STATS = ServerStats(accepted=7, over_limit=1, refused_networks=2, failed=3, granted=4)


@pytest.fixture
def name() -> str:
    return name_of(f"test-{secrets.token_hex(4)}")


@asynccontextmanager
async def saying(name: str, what: bytes) -> AsyncIterator[None]:
    """An exporter that was broken into."""

    async def tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(what)
        writer.close()

    server = await asyncio.start_unix_server(tell, f"\0{name}")
    yield
    server.close()
    await server.wait_closed()


async def test_what_is_counted_is_told(name: str) -> None:
    server = CountsServer(name, UID, lambda: STATS)
    await server.start()
    assert await ask(name, UID) == STATS
    await server.stop()
    with pytest.raises(Unreachable, match="does not tell its numbers"):
        await ask(name, UID)


async def test_another_user_is_told_nothing(name: str, caplog: pytest.LogCaptureFixture) -> None:
    server = CountsServer(name, UID + 1, lambda: STATS)
    await server.start()
    with pytest.raises(Unreachable):
        await ask(name, UID)
    await server.stop()
    assert f"is not user {UID + 1}" in caplog.text


async def test_another_users_numbers_are_not_believed(name: str) -> None:
    server = CountsServer(name, UID, lambda: STATS)
    await server.start()
    with pytest.raises(NotAuthenticated):
        await ask(name, UID + 1)
    await server.stop()


@pytest.mark.parametrize(
    "what",
    [
        b"",
        b"[]",
        b"{}",
        b"x" * 5000,
        b"[" * 4000,
        b'{"accepted": 1, "over_limit": 0, "refused_networks": 0, "failed": -1, "granted": 0}',
        b'{"accepted": 1, "over_limit": 0, "refused_networks": 0, "failed": true, "granted": 0}',
        b'{"accepted": 1e400, "over_limit": 0, "refused_networks": 0, "failed": 0, "granted": 0}',
    ],
)
async def test_only_counts_are_taken(name: str, what: bytes) -> None:
    async with saying(name, what):
        with pytest.raises(Unreachable):
            await ask(name, UID)
