# SPDX-License-Identifier: Apache-2.0
"""One call of the plugin to the cluster: kubeconfig, namespace and client.

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


def namespace(path: Path | None, given: str | None) -> str:
    """The namespace meant: the option, that of the kubeconfig's context, `default`.

    Raises ConfigError when there is no kubeconfig; the client says what is wrong in one.
    """
    if given:
        return given
    import yaml

    try:
        data = yaml.safe_load(kubeconfig(path).read_text())
        for entry in data.get("contexts") or ():
            if entry.get("name") == data.get("current-context"):
                return str((entry.get("context") or {}).get("namespace") or "default")
    except (OSError, ValueError, yaml.YAMLError, AttributeError):
        pass
    return "default"


def ask(path: Path | None, work: Callable[[KubeClient], Awaitable[T]], timeout: float = 15.0) -> T:
    """Do the work with a client that is closed afterwards; `timeout` is a request's, in seconds.

    Raises ApiError and ConfigError.
    """
    return asyncio.run(_ask(kubeconfig(path), work, timeout))


async def _ask(path: Path, work: Callable[[KubeClient], Awaitable[T]], timeout: float) -> T:
    from usbdra.kube.client import KubeClient

    client = await KubeClient.connect(path, timeout)
    try:
        return await work(client)
    finally:
        await client.aclose()
