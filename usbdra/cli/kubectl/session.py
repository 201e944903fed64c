# SPDX-License-Identifier: Apache-2.0
"""One call of the plugin to the cluster: kubeconfig, client, and what views are made of.

Owns the connection. Decides nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from usbdra.errors import ConfigError

if TYPE_CHECKING:
    from usbdra.kube.client import KubeClient

T = TypeVar("T")


def kubeconfig(given: Path | None) -> Path:
    """The file kubectl itself would use: the option, $KUBECONFIG's first, ~/.kube/config.

    Raises ConfigError when there is none.
    """
    listed = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    path = given or next(iter(listed), Path.home() / ".kube/config")
    if not path.exists():
        raise ConfigError(f"no kubeconfig {path}; name one with --kubeconfig or in KUBECONFIG")
    return path


def ask(path: Path | None, work: Callable[[KubeClient], Awaitable[T]]) -> T:
    """Do the work with a client that is closed afterwards. Raises ApiError and ConfigError."""
    return asyncio.run(_ask(kubeconfig(path), work))


async def _ask(path: Path, work: Callable[[KubeClient], Awaitable[T]]) -> T:
    from usbdra.kube.client import KubeClient

    client = await KubeClient.connect(path)
    try:
        return await work(client)
    finally:
        await client.aclose()
