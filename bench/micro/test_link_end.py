# SPDX-License-Identifier: Apache-2.0
"""From the end of a TCP connection to the agent's listener: the kernel's own message, no fakes."""

from __future__ import annotations

import asyncio
import socket
import struct
import time

from bench.conftest import Replay, spread
from usbdra.transport.watch import LinkWatch, NetlinkEnds, endpoints_of
from usbdra.types import Endpoints

ENDS = 50
GROUP = "end of a link"
RESET_AT_CLOSE = struct.pack("ii", 1, 0)


def test_an_end_that_was_reset_is_told(replay: Replay) -> None:
    """The other end aborts, as a node does that starts again."""

    async def rounds() -> list[float]:
        taken = []
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            told: asyncio.Queue[Endpoints | None] = asyncio.Queue()
            links = LinkWatch(lambda: NetlinkEnds(port))
            links.listen(told.put_nowait)
            task = asyncio.create_task(links.run())
            assert await told.get() is None
            for _ in range(ENDS):
                ours = socket.create_connection(("127.0.0.1", port))
                theirs, _ = server.accept()
                end = endpoints_of(theirs)
                ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
                start = time.perf_counter()
                ours.close()
                theirs.close()
                async with asyncio.timeout(5):
                    assert await told.get() == end
                taken.append(time.perf_counter() - start)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return taken

    seconds = asyncio.run(rounds())
    replay(GROUP, seconds, goal_max_ms=100, **spread(seconds))
