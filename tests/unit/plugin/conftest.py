# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the plugin's tests."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc.aio
import pytest

from tests.conftest import open_descriptors

from .world import World

GRPC_SECONDS = 2.0


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    await made.aclose()


@pytest.fixture(scope="session", autouse=True)
def grpc_poller(tmp_path_factory: pytest.TempPathFactory) -> None:
    """gRPC makes one poller when the first port cannot be had and keeps it for the process."""
    nowhere = tmp_path_factory.mktemp("g") / "no-directory" / "s"

    async def fail_once() -> None:
        server = grpc.aio.server()
        with pytest.raises(RuntimeError):
            server.add_insecure_port(f"unix:{nowhere}")
        await server.stop(None)

    asyncio.run(fail_once())


@pytest.fixture
def grpc_ends() -> Iterator[None]:
    """gRPC's own threads close its descriptors a moment after the last server and channel."""
    before = set(open_descriptors())
    yield
    deadline = time.monotonic() + GRPC_SECONDS
    while set(open_descriptors()) - before and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.005)
