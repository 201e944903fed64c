# SPDX-License-Identifier: Apache-2.0
"""A fake broker, and a peer that answers with given bytes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from tests.fakes.broker import FakeBroker
from tests.fakes.ktls import UserTls

Scripted = Callable[[bytes, bool], "contextlib.AbstractAsyncContextManager[int]"]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    fake = FakeBroker()
    yield fake
    fake.close()


@pytest.fixture
def tls() -> Iterator[UserTls]:
    fake = UserTls()
    yield fake
    fake.close()


@pytest.fixture
def scripted() -> Scripted:
    """A server that reads 8 bytes, sends the given ones and closes, or says nothing more."""

    @contextlib.asynccontextmanager
    async def start(answer: bytes, close: bool) -> AsyncIterator[int]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            serving = asyncio.create_task(_serve_once(listener, answer, close))
            try:
                yield listener.getsockname()[1]
            finally:
                serving.cancel()
                await asyncio.wait([serving])

    return start


async def _serve_once(listener: socket.socket, answer: bytes, close: bool) -> None:
    loop = asyncio.get_running_loop()
    peer, _ = await loop.sock_accept(listener)
    with peer:
        peer.setblocking(False)
        await loop.sock_recv(peer, 8)
        await loop.sock_sendall(peer, answer)
        if close:
            peer.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while await loop.sock_recv(peer, 4096):
                pass
