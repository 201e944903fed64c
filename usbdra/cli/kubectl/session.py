# SPDX-License-Identifier: Apache-2.0
"""One call of the plugin to the cluster: kubeconfig, namespace and client.

Owns the connection. Decides nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from usbdra.errors import ConfigError

if TYPE_CHECKING:
    from usbdra.kube.client import KubeClient

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Where:
    """Which cluster is meant: kubeconfig files with colons between, and their context."""

    files: Path
    context: str
    namespace: str


def where(given: Path | None) -> Where:
    """What kubectl itself would use: the option, those of $KUBECONFIG, ~/.kube/config.

    Of several files the first that says something has the word, as with kubectl. Raises
    ConfigError when there is none.
    """
    listed = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    wanted = [given] if given else listed or [Path.home() / ".kube/config"]
    found = [path for path in wanted if path.exists()]
    if not found:
        raise ConfigError(f"no kubeconfig {wanted[0]}; name one with --kubeconfig or in KUBECONFIG")
    read = [_read(path) for path in found]
    context = next((str(c) for data in read if (c := data.get("current-context"))), "")
    named = (
        entry.get("context") or {}
        for data in read
        for entry in data.get("contexts") or ()
        if isinstance(entry, dict) and entry.get("name") == context
    )
    space = str(next(named, {}).get("namespace") or "default")
    return Where(Path(os.pathsep.join(map(str, found))), context, space)


def namespace(path: Path | None, given: str | None) -> str:
    """The namespace meant: the option, that of the kubeconfig's context, `default`.

    Raises ConfigError when there is no kubeconfig.
    """
    return given or where(path).namespace


def _read(path: Path) -> dict[str, Any]:
    """A kubeconfig; empty for one that is none: the client says what is wrong with it."""
    import yaml

    try:
        data = yaml.safe_load(path.read_text())
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return data if isinstance(data, dict) else {}


def ask(path: Path | None, work: Callable[[KubeClient], Awaitable[T]], timeout: float = 15.0) -> T:
    """Do the work with a client that is closed afterwards; `timeout` is a request's, in seconds.

    Raises ApiError and ConfigError.
    """
    return asyncio.run(_ask(where(path), work, timeout))


async def _ask(place: Where, work: Callable[[KubeClient], Awaitable[T]], timeout: float) -> T:
    from usbdra.kube.client import KubeClient

    client = await KubeClient.connect(place.files, timeout, place.context)
    try:
        return await work(client)
    finally:
        await client.aclose()
