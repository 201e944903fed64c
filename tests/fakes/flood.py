# SPDX-License-Identifier: Apache-2.0
"""A flood of a listener: thousands of connections that prove nothing, each odd in its own way.

    python -m tests.fakes.flood HOST PORT PER_SECOND SOURCE...

As a program it runs until SIGTERM. It says "begins", "flooding" once all connections have been
tried, and at its end how many were made. Owns what strangers send. Must not know who listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
import signal
import socket
import sys
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Self

CONNECTIONS = 2000
DRIPS = 5
DRIP_SECONDS = 0.01
CONNECT_SECONDS = 5.0
NASTY = (
    b"",  # silence
    b"\x16",  # one byte of a handshake, then silence
    b"\x16\x03\x01\xff\xff" + bytes(2000),  # a record that says it is too long
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),  # nearly a hello
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 50,
    bytes.fromhex("0111800500000000") * 200,  # stock USB/IP on the port of TLS
)


class Flood:
    """`async with`: so many connections from these sources, kept open from our side.

    `per_second` new ones then take the place of the oldest, and some send a byte at a time and
    come back when they are cut. `made` counts those that the listener's kernel took.
    """

    def __init__(
        self, host: str, port: int, sources: Sequence[str], *, per_second: float = 0
    ) -> None:
        self._to = (host, port)
        self._sources = sources
        self._per_second = per_second
        self._open: deque[socket.socket] = deque()
        self._tasks: list[asyncio.Task[None]] = []
        self._number = 0
        self.made = 0

    async def __aenter__(self) -> Self:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, CONNECTIONS + 500), hard))
        self._tasks = [asyncio.create_task(self._drip()) for _ in range(DRIPS)]
        for _ in range(0, CONNECTIONS, 100):
            await asyncio.gather(*(self._connect() for _ in range(100)))
        if self._per_second:
            self._tasks.append(asyncio.create_task(self._renew()))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while self._open:
            self._open.pop().close()

    async def _connect(self) -> None:
        number, self._number = self._number, self._number + 1
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._open.append(sock)
        sock.setblocking(False)
        with contextlib.suppress(OSError):  # a TimeoutError is one too
            sock.bind((self._sources[number % len(self._sources)], 0))
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().sock_connect(sock, self._to)
            self.made += 1
            odd = random.Random(number).randbytes(700)
            sock.send(odd if number % 7 == 6 else NASTY[number % len(NASTY)])

    async def _renew(self) -> None:
        """At a pace of its own, whether the listener keeps up or not."""
        waiting: set[asyncio.Task[None]] = set()
        try:
            while True:
                self._open.popleft().close()
                task = asyncio.create_task(self._connect())
                waiting.add(task)
                task.add_done_callback(waiting.discard)
                await asyncio.sleep(1 / self._per_second)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _drip(self) -> None:
        """Slow bytes: a connection that sends one at a time, made again when it is cut."""
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(
                    *self._to, local_addr=(self._sources[0], 0)
                )
                try:
                    for byte in b"\x16\x03\x01\x02\x00" + bytes(512):
                        writer.write(bytes((byte,)))
                        await writer.drain()
                        await asyncio.sleep(DRIP_SECONDS)
                finally:
                    writer.close()
            await asyncio.sleep(DRIP_SECONDS)


async def run(flood: Flood) -> None:
    """Flood until SIGTERM."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    print("begins", flush=True)
    async with flood:
        print("flooding", flush=True)
        await over.wait()
    print(f"made {flood.made}", flush=True)


if __name__ == "__main__":
    host, port, pace, *sources = sys.argv[1:]
    asyncio.run(run(Flood(host, int(port), sources, per_second=float(pace))))
