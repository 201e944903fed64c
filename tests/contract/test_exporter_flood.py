# SPDX-License-Identifier: Apache-2.0
"""A flood against the real exporter process while a node that means it gets its device."""

from __future__ import annotations

import asyncio
import contextlib
import os

import pytest

from tests.contract.exporting import CLAIM, NAME, World
from tests.fakes.flood import Flood
from tests.fakes.kernel_stub import USED
from usbdra.errors import LinkError

SOURCES = [f"127.0.1.{number}" for number in range(1, 21)]
MAX_RSS_KIB = 80 * 1024


def flooded(world: World) -> Flood:
    return Flood("127.0.0.1", world.exporter.port, SOURCES)


async def granted(world: World, tries: int = 20) -> int:
    """How many tries a node needs for its device, as a kubelet tries again."""
    for attempt in range(1, tries + 1):
        with contextlib.suppress(LinkError):
            async with world.link() as link:
                await link.grant(NAME, claim=CLAIM)
                assert world.kernel.stub.state(world.stick) == USED
                return attempt
    pytest.fail(f"no device within {tries} tries")


async def test_a_flood_shuts_out_no_node_and_costs_no_memory(world: World) -> None:
    async with world.link() as running:
        await running.grant(NAME, claim=CLAIM)
        with running.take_socket() as sock:
            async with flooded(world):
                # A link that runs is the kernel's: no flood at the listener reaches it.
                assert world.kernel.stub.state(world.stick) == USED
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(asyncio.get_running_loop().sock_recv(sock, 1), 0.05)
    await world.given_back()
    async with flooded(world):
        assert await granted(world) <= 3
        rss = int(world.exporter.status("VmRSS").split()[0])
        assert rss < MAX_RSS_KIB, f"{rss} KiB resident"
        assert world.exporter.process is not None
        descriptors = len(os.listdir(f"/proc/{world.exporter.process.pid}/fd"))
        assert descriptors < 128 + 64
    assert await granted(world) == 1
    await world.given_back()
