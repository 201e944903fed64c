# SPDX-License-Identifier: Apache-2.0
"""The client against a real HTTP server of our own that answers what a test says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from usbdra.kube import errors
from usbdra.kube.access import Access, proxy_from_environment
from usbdra.kube.client import KubeClient, OnAnswer
from usbdra.kube.types import NODE, RESOURCE_CLAIM, RESOURCE_SLICE


class Server:
    """Answers each request with `status` and `body`; `seen` has what was asked."""

    def __init__(self) -> None:
        self.status = 200
        self.body = b"{}"
        self.seen: list[dict[str, Any]] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.seen.append(
            {
                "what": f"{request.method} {request.rel_url}",
                "type": request.headers.get("Content-Type"),
                "authorization": request.headers.get("Authorization"),
                "body": await request.read(),
            }
        )
        return web.Response(status=self.status, body=self.body)


async def bearer() -> str:
    return "Bearer one"


@asynccontextmanager
async def serving(
    timeout: float = 5.0,
    on_answer: OnAnswer = lambda verb, result: None,
    server: Server | None = None,
) -> AsyncIterator[tuple[Server, KubeClient]]:
    server, app = server or Server(), web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, listener).start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    access = Access(url, ssl.create_default_context(), bearer)
    client = KubeClient(access, timeout, on_answer)
    try:
        yield server, client
    finally:
        await client.aclose()
        await runner.cleanup()


async def test_get() -> None:
    async with serving() as (server, client):
        server.body = b'{"metadata":{"name":"n1"}}'
        assert await client.get(NODE, "n1") == {"metadata": {"name": "n1"}}
    (seen,) = server.seen
    assert seen["what"] == "GET /api/v1/nodes/n1"
    assert seen["authorization"] == "Bearer one"
    assert seen["body"] == b""


async def test_a_request_needs_no_thread_and_no_netrc(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A .netrc of the user's must not meet our token: HTTP has one Authorization."""
    (tmp_path / ".netrc").write_text("default login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))

    def no_thread(*_: object) -> None:
        raise AssertionError("a thread was asked")

    async with serving() as (server, client):
        monkeypatch.setattr(asyncio.get_running_loop(), "run_in_executor", no_thread)
        await client.get(NODE, "n1")
        monkeypatch.undo()
    assert server.seen[0]["authorization"] == "Bearer one"


async def test_proxies_of_the_environment_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as (proxy, other):
        monkeypatch.setenv("http_proxy", other._access.server)
        access = Access("http://api.example:6443", ssl.create_default_context(), bearer)
        client = KubeClient(access, 5.0)
        await client.get(NODE, "n1")
        await client.aclose()
    assert [seen["what"] for seen in proxy.seen] == ["GET /api/v1/nodes/n1"]
    monkeypatch.setenv("no_proxy", "api.example")
    assert proxy_from_environment("http://api.example:6443") is None
    assert proxy_from_environment("https://other.example") is None
    monkeypatch.setenv("https_proxy", "http://user:word@proxy:3128")
    assert proxy_from_environment("https://other.example") == "http://user:word@proxy:3128"


async def test_selectors_are_quoted() -> None:
    async with serving() as (server, client):
        await client.list(RESOURCE_SLICE, labels="a/b=c,d=e", fields="spec.nodeName=n1")
    assert server.seen[0]["what"].startswith("GET /apis/resource.k8s.io/v1/resourceslices?")
    assert "labelSelector=a/b%3Dc,d%3De" in server.seen[0]["what"]
    assert "fieldSelector=spec.nodeName%3Dn1" in server.seen[0]["what"]


async def test_raw_keeps_the_query_of_its_path() -> None:
    async with serving() as (server, client):
        await client.raw("/version?timeout=1s")
    assert server.seen[0]["what"] == "GET /version?timeout=1s"


async def test_apply_names_its_manager_and_type() -> None:
    async with serving() as (server, client):
        await client.apply(
            RESOURCE_CLAIM,
            {"metadata": {"name": "c"}},
            manager="usb.example/n1",
            namespace="lab",
            subresource="status",
        )
    (seen,) = server.seen
    path = "PATCH /apis/resource.k8s.io/v1/namespaces/lab/resourceclaims/c/status"
    assert seen["what"] == f"{path}?fieldManager=usb.example/n1&force=true"
    assert seen["type"] == "application/apply-patch+yaml"
    assert json.loads(seen["body"])["kind"] == "ResourceClaim"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, errors.ApiForbidden),
        (404, errors.ApiNotFound),
        (409, errors.ApiConflict),
        (410, errors.ApiExpired),
        (422, errors.ApiInvalid),
        (503, errors.ApiUnavailable),
    ],
)
async def test_an_error_is_typed(status: int, kind: type[errors.ApiError]) -> None:
    async with serving() as (server, client):
        server.status, server.body = status, b'{"reason":"Because","message":"of this"}'
        with pytest.raises(kind, match="GET /api/v1/nodes/n1: of this") as caught:
            await client.get(NODE, "n1")
    assert (caught.value.status, caught.value.api_reason) == (status, "Because")


@pytest.mark.parametrize("body", [b"no json", b"[" * 100_000, b"[1]", b"\xff\xfe"])
async def test_senseless_answers_are_unavailable(body: bytes) -> None:
    async with serving() as (server, client):
        server.body = body
        with pytest.raises(errors.ApiUnavailable):
            await client.get(NODE, "n1")
        server.status = 500
        with pytest.raises(errors.ApiUnavailable):
            await client.get(NODE, "n1")


async def test_a_redirect_is_not_followed() -> None:
    """The token must not go where some proxy points."""
    async with serving() as (server, client):
        server.status = 302
        with pytest.raises(errors.ApiError):
            await client.get(NODE, "n1")
    assert len(server.seen) == 1


class Pages(Server):
    """Answers lists in pages of two, as the API server does with `limit`; `lost` are requests
    (from 0) whose moment is too long ago."""

    def __init__(self, count: int, lost: set[int]) -> None:
        super().__init__()
        self.count, self.lost = count, lost
        self.asked: list[dict[str, str]] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(dict(request.query))
        if len(self.asked) - 1 in self.lost:
            return web.json_response({"code": 410, "reason": "Expired"}, status=410)
        start = int(request.query.get("continue", "0"))
        items = [{"metadata": {"name": f"s{n}"}, "spec": "long"} for n in range(self.count)]
        more = {"continue": str(start + 2)} if start + 2 < self.count else {}
        return web.json_response(
            {"metadata": {"resourceVersion": "7", **more}, "items": items[start : start + 2]}
        )


async def paged(server: Pages) -> Any:
    async with serving(server=server) as (_, client):
        return await client.list(
            RESOURCE_SLICE, fields="spec.driver=d", keep=lambda item: {"kept": item["metadata"]}
        )


async def test_a_long_list_comes_in_pages_and_is_kept_in_part() -> None:
    server = Pages(5, set())
    found = await paged(server)
    assert [item["kept"]["name"] for item in found["items"]] == ["s0", "s1", "s2", "s3", "s4"]
    assert all(item.keys() == {"kept"} for item in found["items"])
    assert found["metadata"] == {"resourceVersion": "7"}
    assert [asked.get("continue") for asked in server.asked] == [None, "2", "4"]
    assert all(asked["limit"] == "500" for asked in server.asked)
    assert all(asked["fieldSelector"] == "spec.driver=d" for asked in server.asked)


async def test_all_of_a_kind_comes_in_pages_and_a_selection_at_once() -> None:
    server = Pages(3, set())
    async with serving(server=server) as (_, client):
        assert len((await client.list(RESOURCE_SLICE))["items"]) == 3
        await client.list(RESOURCE_SLICE, labels="a=b")
    assert [asked.get("limit") for asked in server.asked] == ["500", "500", None]


async def test_pages_of_a_moment_that_is_too_old_are_begun_anew() -> None:
    server = Pages(5, {2})
    found = await paged(server)
    assert [item["kept"]["name"] for item in found["items"]] == ["s0", "s1", "s2", "s3", "s4"]
    assert [asked.get("continue") for asked in server.asked] == [None, "2", "4", None, "2", "4"]


async def test_pages_that_are_always_too_old_are_told() -> None:
    server = Pages(5, {1, 3, 5})
    with pytest.raises(errors.ApiExpired):
        await paged(server)
    assert len(server.asked) == 6


async def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    client = KubeClient(Access(url, ssl.create_default_context(), bearer))
    try:
        with pytest.raises(errors.ApiUnavailable, match="GET /version"):
            await client.raw("/version")
    finally:
        await client.aclose()


async def test_watch_tells_each_line_and_ends_with_the_answer() -> None:
    events = [
        {"type": kind, "object": {"metadata": {"name": "s"}}} for kind in ("ADDED", "DELETED")
    ]
    async with serving() as (server, client):
        server.body = b"".join(json.dumps(event).encode() + b"\n" for event in events)
        found = [event async for event in client.watch(RESOURCE_SLICE, "7", seconds=3)]
    assert found == [(event["type"], event["object"]) for event in events]
    assert "resourceVersion=7" in server.seen[0]["what"]


async def test_watch_takes_an_object_of_the_largest_size() -> None:
    big = {"type": "ADDED", "object": {"data": "x" * 1_500_000}}
    async with serving() as (server, client):
        server.body = json.dumps(big).encode() + b"\n"
        found = [event async for event in client.watch(RESOURCE_SLICE, "7")]
    assert len(found[0][1]["data"]) == 1_500_000


async def test_watch_of_an_old_version_expires() -> None:
    error = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}
    async with serving() as (server, client):
        server.body = json.dumps(error).encode() + b"\n"
        with pytest.raises(errors.ApiExpired, match="too old"):
            _ = [event async for event in client.watch(RESOURCE_SLICE, "7")]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"type":"BOOKMARK","object":{}}\n', ["ok"]),
        (b'{"type":"ERROR","object":{"code":410}}\n', ["ok", "ApiExpired"]),
        (b'{"type":"ADD', ["ok", "ApiUnavailable"]),
    ],
)
async def test_a_watch_that_breaks_is_told_once_more(body: bytes, told: list[str]) -> None:
    """One that the server ends in order is not."""
    heard: list[tuple[str, str]] = []
    async with serving(on_answer=lambda *what: heard.append(what)) as (server, client):
        server.body = body
        with contextlib.suppress(errors.ApiError):
            async for _ in client.watch(RESOURCE_SLICE, "7"):
                pass
    assert heard == [("watch", result) for result in told]


async def test_text_is_read_up_to_a_limit() -> None:
    async with serving() as (server, client):
        server.body = b"one\ntwo\xff"
        assert await client.text("/log", {"tailLines": "5"}, 100) == "one\ntwo\ufffd"
        assert server.seen[0]["what"] == "GET /log?tailLines=5"
        assert await client.text("/log", {}, 3) == "one"
        server.status = 404
        with pytest.raises(errors.ApiNotFound):
            await client.text("/log", {}, 3)


async def test_an_eviction_names_the_pod_by_its_uid() -> None:
    async with serving() as (server, client):
        server.body = b'{"kind":"Status","status":"Success"}'
        await client.evict("app", "team", uid="u-1")
        assert server.seen[0]["what"].startswith("POST /api/v1/namespaces/team/pods/app/eviction")
        assert json.loads(server.seen[0]["body"])["deleteOptions"] == {
            "preconditions": {"uid": "u-1"}
        }
