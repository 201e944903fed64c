# SPDX-License-Identifier: Apache-2.0
"""Reads whose answer may be that there is none."""

from __future__ import annotations

from usbdra.kube import errors
from usbdra.kube.types import Kind, Object
from usbdra.kube.verbs import Gets


async def read(api: Gets, kind: Kind, name: str, namespace: str | None = None) -> Object | None:
    """An object as it is now; None when there is none. Raises ApiError."""
    try:
        return await api.get(kind, name, namespace)
    except errors.ApiNotFound:
        return None
