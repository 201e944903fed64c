# SPDX-License-Identifier: Apache-2.0
"""Serves the page: its files to everybody, the cluster to those the cluster knows.

Owns routes, answers and their limits. Decides no right: gate.py asks the cluster. An assignment is
written with the user's own token, so that the API server judges, admits and audits it as theirs.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from usbdra.controller.web import files
from usbdra.controller.web.gate import Gate, Right, TooMany, User, bearer
from usbdra.controller.web.options import WebOptions
from usbdra.controller.web.stream import Streams
from usbdra.controller.web.watching import Watching
from usbdra.kube import errors
from usbdra.kube.client import KubeClient
from usbdra.kube.custom import Contract

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)

MAX_BODY = 4096
MAX_CONNECTIONS = 128
_STOP_SECONDS = 2.0
_DEVICE = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_NAMESPACE = re.compile(r"([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?", re.ASCII)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WebServer:
    """See the module. Use `start` and `stop`; port 0 lets the system choose."""

    def __init__(self, api: KubeClient, contract: Contract, options: WebOptions) -> None:
        self._api = api
        self._contract = contract
        self._options = options
        self._gate = Gate(api)
        self._files = files.load()
        self._watching = Watching(api, contract)
        self._streams = Streams(self._gate, self._watching, contract)
        app = web.Application(middlewares=[self._careful], client_max_size=MAX_BODY)
        app.router.add_get("/api/stream", self._stream)
        app.router.add_post("/api/assign", self._assign)
        app.router.add_get("/{name:[a-z.]*}", self._file)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=_STOP_SECONDS
        )
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port that is listened on. Only after `start`."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Listen. Raises OSError when the port is taken, ConfigError for a bad certificate."""
        tls = _tls(self._options)
        await self._runner.setup()
        self._server = await asyncio.get_running_loop().create_server(
            self._connection, self._options.host, self._options.port, ssl=tls
        )
        log.info("the page is served", extra={"port": self.port, "tls": tls is not None})

    async def stop(self) -> None:
        """End all streams, then stop listening."""
        await self._watching.stop()
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()

    def _connection(self) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None
        return server() if len(server.connections) < MAX_CONNECTIONS else _Full()

    @web.middleware
    async def _careful(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Every answer has our headers, and every error is JSON that says what is wrong."""
        try:
            response = await handler(request)
        except web.HTTPException as error:
            response = refusal(error.status, str(error.reason))
        except errors.ApiError as error:
            response = refusal(503, f"the API server does not answer: {error}", error.reason)
        except Exception:
            log.exception("the page failed: %s %s", request.method, request.path)
            response = refusal(500, "internal error, see the controller's log")
        if not response.prepared:
            response.headers.update(files.HEADERS)
            response.headers.setdefault("Cache-Control", "no-store")
        return response

    async def _file(self, request: web.Request) -> web.StreamResponse:
        found = self._files.get(request.path)
        if found is None:
            raise web.HTTPNotFound(reason="no such page")
        headers = {"ETag": found.etag, "Cache-Control": "no-cache"}
        if request.headers.get("If-None-Match") == found.etag:
            return web.Response(status=304, headers=headers)
        return web.Response(
            body=found.body, content_type=found.type, charset="utf-8", headers=headers
        )

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        user, _ = await self._user(request)
        return await self._streams.serve(request, user)

    async def _assign(self, request: web.Request) -> web.StreamResponse:
        if not _same_origin(request):
            raise web.HTTPForbidden(reason="only this page's own requests are answered")
        user, token = await self._user(request)
        device, namespace = await _wanted(request)
        kind = self._contract.node_device
        refused = await self._gate.may(user, Right("patch", kind, device))
        if refused:
            raise web.HTTPForbidden(reason=_line(refused))
        client = self._api.on_behalf(token)
        try:
            await client.merge(kind, device, {"spec": {"assignedNamespace": namespace}})
        except (
            errors.ApiNotFound,
            errors.ApiForbidden,
            errors.ApiInvalid,
            errors.ApiConflict,
        ) as e:
            return refusal(e.status or 403, str(e), e.reason)
        finally:
            await client.aclose()
        said = {"device": device, "namespace": namespace}
        log.info(
            "assigned by the page", extra={"user": user.name, "device": device, "ns": namespace}
        )
        return web.json_response(said)

    async def _user(self, request: web.Request) -> tuple[User, str]:
        """Who asks, with their token. Raises HTTPUnauthorized and HTTPTooManyRequests."""
        token = bearer(request.headers.get("Authorization", ""))
        if not token:
            raise web.HTTPUnauthorized(reason="a bearer token of the cluster is needed")
        try:
            user = await self._gate.who(token)
        except TooMany:
            raise web.HTTPTooManyRequests(reason="too many unknown tokens, try later") from None
        if user is None:
            raise web.HTTPUnauthorized(reason="the cluster does not know this token")
        return user, token


class _Full(asyncio.Protocol):
    """A connection beyond the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close it at once."""
        transport.close()


def refusal(status: int, message: str, reason: str = "") -> web.Response:
    """An error as the page and other programs read it."""
    error = {"reason": reason or http_word(status), "message": message}
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return web.json_response({"error": error}, status=status, headers=headers)


def http_word(status: int) -> str:
    """HTTP's own words for a status, as one."""
    from http import HTTPStatus

    return HTTPStatus(status).phrase.title().replace(" ", "")


async def _wanted(request: web.Request) -> tuple[str, str]:
    """(device, namespace) of a request to assign. Raises HTTPBadRequest and others."""
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(reason="application/json is wanted")
    try:
        body: Any = json.loads(await request.read())
    except (ValueError, RecursionError):
        raise web.HTTPBadRequest(reason="the body is no JSON") from None
    if not isinstance(body, dict) or body.keys() != {"device", "namespace"}:
        raise web.HTTPBadRequest(reason="exactly device and namespace are wanted")
    device, namespace = body["device"], body["namespace"]
    if not isinstance(device, str) or not _DEVICE.fullmatch(device):
        raise web.HTTPBadRequest(reason="device: no name of an object")
    if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace):
        raise web.HTTPBadRequest(reason="namespace: no name of a namespace")
    return device, namespace


def _same_origin(request: web.Request) -> bool:
    """No other site's script sent this: browsers say where a request comes from.

    A token in a header cannot be sent by another site anyhow; this holds if a proxy adds one.
    """
    if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
        return False
    origin = request.headers.get("Origin")
    return origin is None or origin.partition("://")[2] == request.host


def _line(text: str) -> str:
    """Fit for a status line: printable, in one line, not long."""
    return "".join(c if c.isprintable() and c.isascii() else "?" for c in text)[:300]


def _tls(options: WebOptions) -> ssl.SSLContext | None:
    if options.tls is None:
        return None
    from usbdra.controller.web.tls import Renewed

    return Renewed(options.tls).context
