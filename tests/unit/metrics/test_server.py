# SPDX-License-Identifier: Apache-2.0
"""GET /metrics: what is answered to whom, and what a stranger cannot make it do."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.fakes.certificates import certificates
from tests.waiting import patience
from usbdra.metrics import server as module
from usbdra.metrics.server import MAX_CONNECTIONS, MAX_REQUEST, MetricsServer


async def body() -> bytes:
    return b"up 1\n"


async def only_good(token: str) -> int:
    return {"": 401, "good": 200}.get(token, 403)


@asynccontextmanager
async def serving(**options: object) -> AsyncIterator[MetricsServer]:
    server = MetricsServer(("127.0.0.1", 0), body, **options)  # type: ignore[arg-type]
    await server.start()
    yield server
    await server.stop()


async def ask(server: MetricsServer, request: str, tls: ssl.SSLContext | None = None) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=tls)
    writer.write(request.encode())
    try:
        return (await reader.read()).decode()
    except ConnectionResetError:  # closed before all was read
        return ""
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


def get(path: str = "/metrics", *headers: str) -> str:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *headers, "", ""])


async def test_the_metrics_are_answered_and_nothing_else() -> None:
    async with serving() as server:
        answer = await ask(server, get())
        assert answer.startswith("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4")
        assert answer.endswith("\r\n\r\nup 1\n")
        assert (await ask(server, get("/metrics?x=1"))).startswith("HTTP/1.1 200")
        assert (await ask(server, get("/"))).startswith("HTTP/1.1 404")
        post = get().replace("GET", "POST")
        assert (await ask(server, post)).startswith("HTTP/1.1 405")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([], 401),
        (["Authorization: Basic good"], 401),
        (["authorization: bearer good"], 200),
        (["Authorization: Bearer bad"], 403),
    ],
)
async def test_who_may_ask_is_asked_for(headers: list[str], status: int) -> None:
    async with serving(allowed=only_good) as server:
        answer = await ask(server, get("/metrics", *headers))
        assert answer.startswith(f"HTTP/1.1 {status} ")
        assert ("up 1" in answer) is (status == 200)


async def test_an_endless_request_is_closed_unanswered() -> None:
    async with serving() as server:
        assert await ask(server, "GET /metrics HTTP/1.1\r\nX: " + "y" * 2 * MAX_REQUEST) == ""


async def test_a_slow_request_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.05)
    async with serving() as server:
        assert await ask(server, "GET /metr") == ""


async def test_connections_at_once_are_bounded() -> None:
    go = asyncio.Event()

    async def slow(token: str) -> int:
        await go.wait()
        return 200

    async with serving(allowed=slow) as server:
        first = [asyncio.create_task(ask(server, get())) for _ in range(MAX_CONNECTIONS)]
        while len(server._tasks) < MAX_CONNECTIONS:
            await asyncio.sleep(0)
        assert await ask(server, get()) == ""
        go.set()
        assert all(answer.endswith("up 1\n") for answer in await asyncio.gather(*first))


async def test_tls_takes_the_newest_certificate() -> None:
    which = ["a"]

    def context() -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        folder = getattr(certificates(), which[0])
        made.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        return made

    trusting = ssl.create_default_context(cafile=str(certificates().a / "ca.crt"))
    async with serving(tls=context) as server:
        assert (await ask(server, get(), trusting)).startswith("HTTP/1.1 200")
        which[0] = "stranger"
        with pytest.raises(ssl.SSLCertVerificationError):
            await ask(server, get(), trusting)


async def test_it_waits_for_a_port_that_another_process_has(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_PAUSES", (0.01, 0.01))
    async with serving() as older:
        newer = MetricsServer(("127.0.0.1", older.port), body)
        task = asyncio.create_task(newer.run())
        while "not served yet" not in caplog.text:
            await asyncio.sleep(0.001)
    async with patience():
        while "metrics are served" not in caplog.text:
            caplog.set_level("INFO")
            await asyncio.sleep(0.001)
    assert (await ask(newer, get())).endswith("up 1\n")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
