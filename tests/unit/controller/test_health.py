# SPDX-License-Identifier: Apache-2.0
"""The probes' listener."""

from __future__ import annotations

import asyncio

import pytest

from usbdra.controller.health import HealthServer


async def ask(port: int, request: bytes) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    await writer.drain()
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.decode().partition("\r\n")[0]


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /livez HTTP/1.1\r\n", "HTTP/1.1 200 OK"),
        (b"GET /readyz HTTP/1.1\r\n", "HTTP/1.1 503 Service Unavailable"),
        (b"GET /secret HTTP/1.1\r\n", "HTTP/1.1 404 Not Found"),
        (b"\xff\n", "HTTP/1.1 404 Not Found"),
        (b"x" * 70_000 + b"\n", ""),
    ],
)
async def test_answers(request_line: bytes, status: str) -> None:
    checks = {"/livez": lambda: True, "/readyz": lambda: False}
    server = HealthServer(("127.0.0.1", 0), checks)
    await server.start()
    try:
        try:
            answer = await ask(server.port, request_line)
        except ConnectionError:  # hung up on in the middle of a line without end
            answer = ""
        assert answer == status
    finally:
        await server.stop()
