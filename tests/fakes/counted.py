# SPDX-License-Identifier: Apache-2.0
"""The real client of the API server, with a note of every request that goes through it.

Owns the list. Must not change what is asked or answered.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.waiting import until
from usbdra.kube.client import KubeClient
from usbdra.kube.types import Keep, Kind, Object


class Counted:
    """The reading verbs of a KubeClient. `made` has them as "get nodes/a", oldest first."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self.made: list[str] = []

    async def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object:
        """See KubeClient.get."""
        self.made.append(f"get {kind.plural}/{name}")
        return await self._client.get(kind, name, namespace)

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        keep: Keep | None = None,
    ) -> Object:
        """See KubeClient.list."""
        self.made.append(f"list {kind.plural} {labels}{fields}")
        return await self._client.list(kind, namespace, labels=labels, fields=fields, keep=keep)

    def watch(
        self,
        kind: Kind,
        resource_version: str,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
    ) -> AsyncIterator[tuple[str, Object]]:
        """See KubeClient.watch."""
        self.made.append(f"watch {kind.plural} {labels}{fields}")
        return self._client.watch(kind, resource_version, namespace, labels=labels, fields=fields)

    async def watching(self) -> None:
        """Wait until a watch has begun."""
        await until(lambda: any(one.startswith("watch") for one in self.made))


class NoPorts:
    """exporter/lease.py's Ports of a node where nobody counts them."""

    def taken(self, syspath: str, name: object, session: object) -> None:
        """See Ports."""

    def left(self, syspath: str) -> None:
        """See Ports."""
