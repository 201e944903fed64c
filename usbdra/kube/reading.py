# SPDX-License-Identifier: Apache-2.0
"""Reads whose answer may be that there is none."""

from __future__ import annotations

from typing import Protocol

from usbdra.kube import errors
from usbdra.kube.types import Kind, Object


class Api(Protocol):
    """The verb of KubeClient that this needs."""

    async def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object:
        """See KubeClient.get."""
        ...


async def read(api: Api, kind: Kind, name: str, namespace: str | None = None) -> Object | None:
    """An object as it is now; None when there is none. Raises ApiError."""
    try:
        return await api.get(kind, name, namespace)
    except errors.ApiNotFound:
        return None
