# SPDX-License-Identifier: Apache-2.0
"""A cut that a connection outlives: how long after it what was on its way arrives.

    unshare --net python -m bench.cluster.outlived ROUNDS SECONDS

Two connections over one cable (cable.py), one with the options of the product's links, one with
the kernel's own. Each has a byte on its way when the cable
is pulled, for SECONDS. Prints JSON: {"ours": seconds from the plug until it is acknowledged,
"kernel": the same}, a list each.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time

from bench.cluster.cable import Cable
from usbdra.transport.sockets import LinkTimeouts, tune

PORT = 3241
LIMIT_SECONDS = 60.0
ECHO = f"""
import asyncio
async def echo(reader, writer):
    while data := await reader.read(1):
        writer.write(data)
async def main():
    async with await asyncio.start_server(echo, "{Cable.address}", {PORT}) as server:
        print(flush=True)
        await server.serve_forever()
asyncio.run(main())
"""


async def measured(count: int, cut: float) -> dict[str, list[float]]:
    """See above."""
    cable, pipe = Cable(), asyncio.subprocess.PIPE
    words = cable.behind([sys.executable, "-c", ECHO])
    far = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
    assert far.stdin is not None
    assert far.stdout is not None
    try:
        cable.lay(far.pid)
        far.stdin.write(b"\n")
        await far.stdout.readline()
        found: dict[str, list[float]] = {"ours": [], "kernel": []}
        for _ in range(count):
            for name, seconds in (await one(cable, cut)).items():
                found[name].append(seconds)
        return found
    finally:
        far.terminate()
        await far.wait()


async def one(cable: Cable, cut: float) -> dict[str, float]:
    """One cut."""
    ours, kernel = (socket.create_connection((cable.address, PORT)) for _ in range(2))
    with ours, kernel:
        tune(ours, LinkTimeouts())
        cable.pull()
        waiting = [asyncio.create_task(answered(sock)) for sock in (ours, kernel)]
        await asyncio.sleep(cut)
        cable.plug()
        plugged = time.monotonic()
        async with asyncio.timeout(LIMIT_SECONDS):
            ends = [await task - plugged for task in waiting]
    return dict(zip(("ours", "kernel"), ends, strict=True))


async def answered(sock: socket.socket) -> float:
    """When a byte that is sent now comes back."""
    loop = asyncio.get_running_loop()
    sock.setblocking(False)
    await loop.sock_sendall(sock, b"x")
    await loop.sock_recv(sock, 1)
    return time.monotonic()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measured(int(sys.argv[1]), float(sys.argv[2])))))
