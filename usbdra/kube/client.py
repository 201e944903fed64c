# SPDX-License-Identifier: Apache-2.0
"""The one HTTP client of the API server: plain objects in and out, typed errors.

Owns the connection pool; credentials are access.py's. Must not hold any object or decide anything.
No retries here: callers know what a repeat means.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import access as ways
from . import errors
from .access import Access
from .types import POD, Keep, Kind, Object

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON = "application/json"
MAX_ANSWER = 256 << 20
"""Bytes of one answer; a list of 10,000 slices is below 100 MB."""
PAGE = 500
"""Objects of one page: the size that client-go has, 2 MB of NodeUSBDevices."""
PAGED_TRIES = 3
LINE_BUFFER = 2 << 20
"""Bytes; a watch event is one line, and an object at most 1.5 MiB (etcd)."""

OnAnswer = Callable[[str, str], None]
"""Hears of each request: its verb as roles name it, and `ok` or the error's reason. A watch that
breaks after its beginning was heard of, `ok`, is heard of again."""
_NOT_JSON = (ValueError, RecursionError)
_VERBS = {"GET": "get", "POST": "create", "PUT": "replace", "PATCH": "patch", "DELETE": "delete"}


def _all_of_it(item: Object) -> Object:
    return item


def _nobody(verb: str, result: str) -> None:
    """Nobody counts."""


class KubeClient:
    """Verbs on plain objects. Use `connect`; close with `aclose`."""

    def __init__(
        self, access: Access, timeout: float = 15.0, on_answer: OnAnswer = _nobody
    ) -> None:
        """Needs a running loop. `timeout` bounds every request but watches, in seconds."""
        import aiohttp

        self._access = access
        self._timeout = timeout
        self._on_answer = on_answer
        # trust_env would ask a thread twice for each request, and put a .netrc beside our token.
        self._proxy = access.proxy or ways.proxy_from_environment(access.server)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=access.tls), read_bufsize=LINE_BUFFER
        )

    @classmethod
    async def connect(
        cls,
        kubeconfig: Path | None = None,
        timeout: float = 15.0,
        context: str = "",
        on_answer: OnAnswer = _nobody,
    ) -> KubeClient:
        """A client from a kubeconfig file, or from the pod's service account when None.

        context: of the kubeconfig; its current one when empty.
        Raises ApiForbidden when there are no credentials to be had.
        """
        if kubeconfig is None:
            return cls(ways.from_service_account(), timeout, on_answer)
        return cls(await ways.from_kubeconfig(kubeconfig, context), timeout, on_answer)

    def on_behalf(self, token: str) -> KubeClient:
        """A client of the same server with the rights of this token's owner, to be closed.

        Raises ApiForbidden where a certificate of our own would take the token's place.
        """
        return KubeClient(self._access.as_bearer(token), self._timeout, self._on_answer)

    async def aclose(self) -> None:
        """Close the connection pool."""
        await self._session.close()

    async def get(
        self, kind: Kind, name: str, namespace: str | None = None, subresource: str = ""
    ) -> Object:
        """Read one object. Raises ApiNotFound and the other ApiErrors."""
        return await self._json("GET", kind.path(namespace, name, subresource))

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        keep: Keep | None = None,
    ) -> Object:
        """The whole list object (items, metadata.resourceVersion).

        All of a kind comes in pages, and so does what a caller keeps a part of (`keep`): there
        may be very many: a whole list of 40,000 objects is 140 MB, no server answers that in one
        request's time, and parsed at once it would be all that a leader does for seconds. What is
        not kept of an object goes with its page. The pages are of one moment; begun anew when the
        server cannot tell of that any more. Raises ApiExpired when it never can.

        Any other selection is asked for at once: it is small, and the server has it from its cache,
        where pages may be read from etcd.
        """
        query = _selectors(labels, fields)
        if query and keep is None:
            return await self._json("GET", kind.path(namespace), query=query, verb="list")
        for _ in range(PAGED_TRIES - 1):
            try:
                return await self._pages(kind, namespace, query, keep or _all_of_it)
            except errors.ApiExpired:
                continue
        return await self._pages(kind, namespace, query, keep or _all_of_it)

    async def _pages(
        self,
        kind: Kind,
        namespace: str | None,
        selectors: Mapping[str, str],
        keep: Keep,
    ) -> Object:
        query, items = {**selectors, "limit": str(PAGE)}, []
        while True:
            page = await self._json("GET", kind.path(namespace), query=query, verb="list")
            items += [keep(item) for item in page.get("items") or ()]
            metadata = page.get("metadata") or {}
            if not (token := metadata.get("continue")):
                return {**page, "items": items}
            query["continue"] = token

    async def create(self, kind: Kind, body: Object, namespace: str | None = None) -> Object:
        """Create; the answer is what the server stored, dropped fields included."""
        return await self._json("POST", kind.path(namespace), body=body)

    async def replace(
        self, kind: Kind, body: Object, namespace: str | None = None, subresource: str = ""
    ) -> Object:
        """Replace; ApiConflict when metadata.resourceVersion is not the newest."""
        path = kind.path(namespace, body["metadata"]["name"], subresource)
        return await self._json("PUT", path, body=body)

    async def apply(
        self,
        kind: Kind,
        body: Object,
        *,
        manager: str,
        namespace: str | None = None,
        subresource: str = "",
        force: bool = True,
    ) -> Object:
        """Server-side apply under one fixed field manager (KEP-555)."""
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        path = kind.path(namespace, body["metadata"]["name"], subresource)
        query = {"fieldManager": manager, "force": str(force).lower()}
        return await self._json("PATCH", path, body=body, query=query, content=APPLY)

    async def merge(
        self,
        kind: Kind,
        name: str,
        patch: Object,
        *,
        namespace: str | None = None,
        subresource: str = "",
    ) -> Object:
        """JSON merge patch: None removes a key (RFC 7386)."""
        path = kind.path(namespace, name, subresource)
        return await self._json("PATCH", path, body=patch, content=MERGE)

    async def delete(
        self, kind: Kind, name: str, namespace: str | None = None, *, uid: str = ""
    ) -> None:
        """Delete; gone already is success. With `uid` only that very object."""
        body = {"preconditions": {"uid": uid}} if uid else None
        try:
            await self._json("DELETE", kind.path(namespace, name), body=body)
        except errors.ApiNotFound:
            return

    async def evict(self, name: str, namespace: str, *, uid: str) -> None:
        """End that very pod, if its disruption budgets allow (policy/v1 Eviction).

        Raises ApiUnavailable where one refuses, ApiNotFound, and ApiConflict for another UID.
        """
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        await self._json("POST", POD.path(namespace, name, "eviction"), body=body)

    async def raw(self, path: str) -> Object:
        """GET any path that answers JSON: discovery, `/version`."""
        return await self._json("GET", path)

    async def text(self, path: str, query: Mapping[str, str], limit: int) -> str:
        """GET a path that answers plain text, as a pod's log; at most `limit` bytes of it.

        Bytes that are no UTF-8 are replaced.
        """
        what = f"GET {path}"
        response = await self._send("GET", path, query, None, JSON, self._timeout, accept="*/*")
        try:
            with _answering(what):
                return (await _read(response, limit)).decode(errors="replace")
        finally:
            response.close()  # there may be more of it, which nobody wants

    async def watch(
        self,
        kind: Kind,
        resource_version: str,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        seconds: int = 300,
    ) -> AsyncIterator[tuple[str, Object]]:
        """(type, object) of one watch connection until the server ends it.

        Types: ADDED, MODIFIED, DELETED, BOOKMARK. Raises ApiExpired when the version is too
        old and ApiUnavailable when the connection breaks.
        """
        query = _selectors(labels, fields) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(seconds),
        }
        path = kind.path(namespace)
        limit = seconds + self._timeout
        response = await self._send("GET", path, query, None, JSON, limit, verb="watch")
        try:
            with _answering(f"watch {path}", *_NOT_JSON):
                async for line in response.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        code = int(event["object"].get("code", 500))
                        raise errors.from_status(f"watch {path}", code, event["object"])
                    yield event["type"], event["object"]
        except errors.ApiError as error:
            self._on_answer("watch", error.reason)
            raise
        finally:
            response.close()

    async def _json(
        self,
        method: str,
        path: str,
        *,
        body: Object | None = None,
        query: Mapping[str, str] | None = None,
        content: str = JSON,
        verb: str = "",
    ) -> Object:
        what = f"{method} {path}"
        response = await self._send(
            method, path, query or {}, body, content, self._timeout, verb=verb
        )
        try:
            with _answering(what, *_NOT_JSON):
                data = await _read(response, MAX_ANSWER)
                answer = json.loads(data) if data else {}
        finally:
            response.release()
        if not isinstance(answer, dict):
            raise errors.ApiUnavailable(what, response.status, "BadAnswer", "not a JSON object")
        return answer

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Object | None,
        content: str,
        timeout: float,
        accept: str = JSON,
        verb: str = "",
    ) -> Any:
        """The answer's head, told to `on_answer`; `verb` where the method does not say it."""
        try:
            response = await self._request(method, path, query, body, content, timeout, accept)
        except errors.ApiError as error:
            self._on_answer(verb or _VERBS[method], error.reason)
            raise
        self._on_answer(verb or _VERBS[method], "ok")
        return response

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Object | None,
        content: str,
        timeout: float,
        accept: str,
    ) -> Any:
        import aiohttp
        from yarl import URL

        what = f"{method} {path}"
        headers = {"Accept": accept, "Content-Type": content}
        with _answering(what):
            if authorization := await self._access.authorization():
                headers["Authorization"] = authorization
            response = await self._session.request(
                method,
                URL(f"{self._access.server}{path}").update_query(dict(query)),
                data=None if body is None else json.dumps(body, separators=(",", ":")).encode(),
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=timeout),
                server_hostname=self._access.server_name,
                proxy=self._proxy,
                allow_redirects=False,
            )
        if response.status < 300:
            return response
        raise errors.from_status(what, response.status, await _status(response))


async def _read(response: Any, limit: int) -> bytes:
    """The body, or its first `limit` bytes."""
    data = bytearray()
    while not response.content.at_eof() and len(data) < limit:
        data += await response.content.read(limit - len(data))
    return bytes(data)


async def _status(response: Any) -> Object | None:
    """The Status object of an answer that is an error, where there is one."""
    try:
        status = json.loads(await response.read())
    except (OSError, TimeoutError, ValueError, RecursionError, _client_error()):
        return None
    finally:
        response.release()
    return status if isinstance(status, dict) else None


def _selectors(labels: str, fields: str) -> dict[str, str]:
    query = {"labelSelector": labels, "fieldSelector": fields}
    return {key: value for key, value in query.items() if value}


def _client_error() -> type[Exception]:
    import aiohttp

    return aiohttp.ClientError


@contextmanager
def _answering(what: str, *also: type[Exception]) -> Iterator[None]:
    """A connection that breaks while inside, or one of `also`, is ApiUnavailable."""
    broken: tuple[type[Exception], ...] = (OSError, TimeoutError, _client_error(), *also)
    try:
        yield
    except broken as error:
        text = str(error) or type(error).__name__
        raise errors.ApiUnavailable(what, 0, "NoAnswer", text) from error
