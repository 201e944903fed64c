# SPDX-License-Identifier: Apache-2.0
"""The verbs of KubeClient, one protocol each, so that whoever uses some says which.

A part of the product names what it needs, `class Api(Gets, Creates, Protocol)`, and does nothing
more with what it is given. What each verb does and raises is said at KubeClient.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from usbdra.kube.types import Keep, Kind, Object


class Gets(Protocol):
    """Reads one object."""

    async def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object:
        """See KubeClient.get."""
        ...


class Lister(Protocol):
    """Reads all of a kind and follows it: what a reflector needs."""

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
        ...

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
        ...


class Creates(Protocol):
    """Makes objects."""

    async def create(self, kind: Kind, body: Object, namespace: str | None = None) -> Object:
        """See KubeClient.create."""
        ...


class Replaces(Protocol):
    """Replaces objects of a known version."""

    async def replace(
        self, kind: Kind, body: Object, namespace: str | None = None, subresource: str = ""
    ) -> Object:
        """See KubeClient.replace."""
        ...


class Applies(Protocol):
    """Says what fields of its own are, by server-side apply."""

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
        """See KubeClient.apply."""
        ...


class Merges(Protocol):
    """Changes single fields."""

    async def merge(
        self,
        kind: Kind,
        name: str,
        patch: Object,
        *,
        namespace: str | None = None,
        subresource: str = "",
    ) -> Object:
        """See KubeClient.merge."""
        ...


class Deletes(Protocol):
    """Deletes objects."""

    async def delete(
        self, kind: Kind, name: str, namespace: str | None = None, *, uid: str = ""
    ) -> None:
        """See KubeClient.delete."""
        ...


class Evicts(Protocol):
    """Ends pods as far as their budgets allow."""

    async def evict(self, name: str, namespace: str, *, uid: str) -> None:
        """See KubeClient.evict."""
        ...
