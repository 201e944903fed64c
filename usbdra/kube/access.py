# SPDX-License-Identifier: Apache-2.0
"""Where the API server is and what opens it: the pod's service account, or a kubeconfig file.

Owns reading the credentials. Must not send requests. A service account is read here and not by
the official client, whose import alone is 19 MB of memory and a third of the agent's start; a
kubeconfig, with its plugins for credentials, is read by it.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import errors

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_SECONDS = 60.0
"""How long a token is used before its file is read again; the kubelet renews it long before it
expires (at 80 % of its life, an hour at least)."""


@dataclass(frozen=True, slots=True)
class Access:
    """`server` is a URL without a slash at its end; `authorization` gives the value of that
    header for the next request, empty for none (a client certificate is in `tls`, and then
    `certificate` says so)."""

    server: str
    tls: ssl.SSLContext
    authorization: Callable[[], Awaitable[str]]
    server_name: str | None = None
    proxy: str | None = None
    certificate: bool = False

    def as_bearer(self, token: str) -> Access:
        """The way of somebody else, by their token alone.

        Raises ApiForbidden where our own certificate would go along: a server looks at it first.
        """
        if self.certificate:
            raise _none("a client certificate of our own would speak for the token's owner")

        async def authorization() -> str:
            return f"Bearer {token}"

        return replace(self, authorization=authorization)


def from_service_account(
    directory: Path = SERVICE_ACCOUNT,
    env: Mapping[str, str] = os.environ,
    clock: Callable[[], float] = time.monotonic,
) -> Access:
    """The access that every pod has. Raises ApiForbidden where there is none."""
    host, port = (env.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    if not host or not port:
        raise _none("not in a pod (KUBERNETES_SERVICE_HOST is not set); name a kubeconfig file")
    try:
        tls = ssl.create_default_context(cafile=str(directory / "ca.crt"))
        token = _Token(directory / "token", clock)
        token.read()
    except OSError as error:  # an SSLError too: it is what a file without certificates gives
        raise _none(f"the service account in {directory}: {error}") from error
    return Access(f"https://{f'[{host}]' if ':' in host else host}:{port}", tls, token)


class _Token:
    """`Bearer ...`, read again after a while. A file that cannot be read then is not the end:
    the token of before may be good still."""

    def __init__(self, file: Path, clock: Callable[[], float]) -> None:
        self._file = file
        self._clock = clock
        self._value = ""
        self._read_at = float("-inf")

    async def __call__(self) -> str:
        if self._clock() - self._read_at >= TOKEN_SECONDS:
            try:
                self.read()
            except OSError:
                self._read_at = self._clock()
        return self._value

    def read(self) -> None:
        """Read the file now. Raises OSError, also when there is nothing in it."""
        text = self._file.read_text(encoding="ascii", errors="replace").strip()
        if not text:
            raise OSError(f"{self._file} is empty")
        self._value, self._read_at = f"Bearer {text}", self._clock()


async def from_kubeconfig(file: Path, context: str = "") -> Access:
    """A context of a kubeconfig, its current one by default; `file` may be several, with colons.

    Raises ApiForbidden when it cannot be used.
    """
    from kubernetes.aio import config
    from kubernetes.aio.client import Configuration

    settings: Any = Configuration()
    try:
        await config.load_kube_config(
            config_file=str(file),
            context=context or None,
            client_configuration=settings,
            persist_config=False,
        )
        tls = ssl.create_default_context(
            cafile=settings.ssl_ca_cert, cadata=settings.ca_cert_data or None
        )
        if settings.cert_file:
            tls.load_cert_chain(settings.cert_file, settings.key_file)
    except (config.ConfigException, OSError) as error:
        raise _none(f"{file}: {error}") from error
    if not settings.verify_ssl:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE

    async def authorization() -> str:
        return await settings.get_api_key_with_prefix("BearerToken") or ""

    return Access(
        settings.host.rstrip("/"),
        tls,
        authorization,
        settings.tls_server_name,
        settings.proxy,
        bool(settings.cert_file),
    )


def proxy_from_environment(server: str) -> str | None:
    """The proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY name for a URL; None for none."""
    from urllib.parse import urlsplit
    from urllib.request import getproxies_environment, proxy_bypass

    url = urlsplit(server)
    if not url.hostname or proxy_bypass(url.netloc):
        return None
    return getproxies_environment().get(url.scheme) or None


def _none(message: str) -> errors.ApiForbidden:
    return errors.ApiForbidden("credentials", 0, "NoCredentials", message)
