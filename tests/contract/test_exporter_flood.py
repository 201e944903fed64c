# SPDX-License-Identifier: Apache-2.0
"""A flood against the real exporter process while a node that means it gets its device."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import socket
from collections.abc import AsyncIterator

import pytest

from tests.contract.exporting import CLAIM, NAME, World
from tests.fakes.kernel_stub import USED
from usbdra.errors import LinkError

CONNECTIONS = 2000
SOURCES = [f"127.0.1.{number}" for number in range(1, 21)]
MAX_RSS_KIB = 80 * 1024
NASTY = (
    b"",  # silence
    b"\x16",  # one byte of a handshake, then silence
    b"\x16\x03\x01\xff\xff" + bytes(2000),  # a record that says it is too long
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),  # nearly a hello
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 50,
    bytes.fromhex("0111800500000000") * 200,  # stock USB/IP on the port of TLS
)


@pytest.fixture(autouse=True)
def many_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < CONNECTIONS + 200:
        resource.setrlimit(resource.RLIMIT_NOFILE, (CONNECTIONS + 200, hard))


async def connect(stack: contextlib.ExitStack, port: int, number: int) -> None:
    """One connection of the flood, kept open from our side until the end."""
    sock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    sock.setblocking(False)
    sock.bind((SOURCES[number % len(SOURCES)], 0))
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        await loop.sock_connect(sock, ("127.0.0.1", port))
        data = NASTY[number % len(NASTY)]
        if number % 7 == 6:
            data = random.Random(number).randbytes(700)
        with contextlib.suppress(BlockingIOError):
            sock.send(data)


async def drip(port: int) -> None:
    """Slow bytes: a connection that sends one at a time, made again when it is cut."""
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(SOURCES[0], 0))
            try:
                for byte in b"\x16\x03\x01\x02\x00" + bytes(512):
                    writer.write(bytes((byte,)))
                    await writer.drain()
                    await asyncio.sleep(0.01)
            finally:
                writer.close()
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def flooded(port: int) -> AsyncIterator[None]:
    with contextlib.ExitStack() as stack:
        dripping = [asyncio.create_task(drip(port)) for _ in range(5)]
        for start in range(0, CONNECTIONS, 100):
            await asyncio.gather(
                *(connect(stack, port, number) for number in range(start, start + 100))
            )
        try:
            yield
        finally:
            for task in dripping:
                task.cancel()
            await asyncio.gather(*dripping, return_exceptions=True)


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
            async with flooded(world.exporter.port):
                # A link that runs is the kernel's: no flood at the listener reaches it.
                assert world.kernel.stub.state(world.stick) == USED
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(asyncio.get_running_loop().sock_recv(sock, 1), 0.05)
    await world.given_back()
    async with flooded(world.exporter.port):
        assert await granted(world) <= 3
        rss = int(world.exporter.status("VmRSS").split()[0])
        assert rss < MAX_RSS_KIB, f"{rss} KiB resident"
        assert world.exporter.process is not None
        descriptors = len(os.listdir(f"/proc/{world.exporter.process.pid}/fd"))
        assert descriptors < 128 + 64
    assert await granted(world) == 1
    await world.given_back()
