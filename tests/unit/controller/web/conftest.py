# SPDX-License-Identifier: Apache-2.0
"""The page's server on a cluster in memory that knows two people."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast

import aiohttp
import pytest_asyncio

from tests.fakes.kube import FakeKube
from tests.unit.controller.make import CONTRACT, STICK
from usbdra.controller.web.options import WebOptions
from usbdra.controller.web.server import WebServer
from usbdra.kube import errors
from usbdra.kube.client import KubeClient
from usbdra.kube.reviews import ACCESS_REVIEW, TOKEN_REVIEW
from usbdra.kube.types import Kind, Object

ADMIN, GUEST = "admin-token", "guest-token"
NUSB = CONTRACT.node_device


class Cluster(FakeKube):
    """Answers reviews. `rights` by user name: texts as `list nodeusbdevices`."""

    def __init__(self) -> None:
        super().__init__()
        self.users = {ADMIN: "anna", GUEST: "gil"}
        everything = {f"list {plural}" for plural in _LISTED} | {"patch nodeusbdevices"}
        self.rights = {"anna": everything, "gil": {"list nodeusbdevices"}}
        self.reviews: list[Object] = []
        self.behalf: list[str] = []

    async def create(self, kind: Kind, body: Object, namespace: str | None = None) -> Object:
        if kind not in (TOKEN_REVIEW, ACCESS_REVIEW):
            return await super().create(kind, body, namespace)
        await self._turn()
        self.reviews.append(body)
        if kind == TOKEN_REVIEW:
            name = self.users.get(body["spec"]["token"])
            user = {"username": name, "uid": f"uid-{name}", "groups": ["people"]}
            return {"status": {"authenticated": True, "user": user} if name else {}}
        wanted = body["spec"]["resourceAttributes"]
        right = f"{wanted['verb']} {wanted['resource']}"
        allowed = right in self.rights[body["spec"]["user"]]
        return {"status": {"allowed": allowed} if allowed else {"reason": "no RBAC rule"}}

    def on_behalf(self, token: str) -> Behalf:
        self.behalf.append(token)
        return Behalf(self)


@dataclass
class Behalf:
    """What an assignment needs of a user's own client. `closed` counts."""

    cluster: Cluster
    closed: int = field(default=0)

    async def merge(self, kind: Kind, name: str, patch: Object) -> Object:
        return await self.cluster.merge(kind, name, patch)

    async def aclose(self) -> None:
        self.closed += 1


_LISTED = ("nodeusbdevices", "resourceslices", "resourceclaims", "namespaces")


def stick(name: str = STICK, namespace: str = "", node: str = "a") -> Object:
    """A NodeUSBDevice."""
    attributes = {"name": name, "nodeName": node, "product": "DataTraveler 3.0"}
    states = [{"type": "Ready", "status": "True", "reason": "Ready", "message": "plugged in"}]
    status = {"nodeName": node, "attributes": attributes, "conditions": states}
    meta = {"name": name}
    return {"metadata": meta, "spec": {"assignedNamespace": namespace}, "status": status}


@dataclass
class Page:
    """A browser's view of the server."""

    cluster: Cluster
    server: WebServer
    session: aiohttp.ClientSession

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    async def get(self, path: str, token: str = "", **headers: str) -> tuple[int, Any, str]:
        """(status, headers, body)."""
        async with self.session.get(self.url + path, headers=_with(token, headers)) as found:
            return found.status, found.headers, await found.text()

    async def assign(
        self, body: object, token: str = ADMIN, **headers: str
    ) -> tuple[int, dict[str, Any]]:
        """(status, the answer)."""
        data = body if isinstance(body, str | bytes) else json.dumps(body)
        headers = {"Content-Type": "application/json", **headers}
        url = f"{self.url}/api/assign"
        async with self.session.post(url, data=data, headers=_with(token, headers)) as found:
            return found.status, await found.json()


class Events:
    """Events of one stream."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def next(self) -> tuple[str, Any]:
        """The next event; ("end", None) when there are no more."""
        async with asyncio.timeout(10):  # a quiet stream says something after 20 s
            event = (await self._response.content.readline()).decode()
            if not event:
                return "end", None
            data = (await self._response.content.readline()).decode()
            await self._response.content.readline()
        return event.removeprefix("event: ").strip(), json.loads(data.removeprefix("data: "))


def _with(token: str, headers: dict[str, str]) -> dict[str, str]:
    return {**headers, **({"Authorization": f"Bearer {token}"} if token else {})}


@pytest_asyncio.fixture
async def page() -> AsyncIterator[Page]:
    cluster = Cluster()
    server = WebServer(cast(KubeClient, cluster), CONTRACT, WebOptions(port=0))
    await server.start()
    async with aiohttp.ClientSession() as session:
        yield Page(cluster, server, session)
    await server.stop()


FORBIDDEN = errors.ApiForbidden("PATCH", 403, "Forbidden", "the policy says no")
