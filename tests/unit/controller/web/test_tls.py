# SPDX-License-Identifier: Apache-2.0
"""The page over TLS: what the files hold when a connection begins."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
from pathlib import Path
from typing import cast

import pytest

from tests.fakes.certificates import certificates
from tests.unit.controller.make import CONTRACT
from tests.unit.controller.web.conftest import Cluster
from usbdra.controller.web.options import WebOptions
from usbdra.controller.web.server import WebServer
from usbdra.errors import ConfigError
from usbdra.kube.client import KubeClient


def install(source: Path, folder: Path, at: int) -> None:
    for name in ("tls.crt", "tls.key"):
        shutil.copy(source / name, folder / name)
        os.utime(folder / name, (at, at))


async def served(server: WebServer) -> bytes:
    """The certificate that a connection is shown."""
    assert server._server is not None
    host, port = server._server.sockets[0].getsockname()[:2]
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection(
        "::1" if ":" in host else "127.0.0.1", port, ssl=context
    )
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return cast(bytes, found)


def der(folder: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert((folder / "tls.crt").read_text().split("\n\n")[0])


async def test_a_renewed_certificate_is_used_from_the_next_connection_on(tmp_path: Path) -> None:
    made = certificates()
    install(made.a, tmp_path, 1)
    own = WebServer(cast(KubeClient, Cluster()), CONTRACT, WebOptions(0, tmp_path))
    await own.start()
    try:
        assert await served(own) == der(made.a)
        install(made.b, tmp_path, 2)
        assert await served(own) == der(made.b)
        (tmp_path / "tls.key").write_text("half")
        assert await served(own) == der(made.b), "half written: the old one goes on"
    finally:
        await own.stop()


async def test_files_that_are_no_certificate_are_named(tmp_path: Path) -> None:
    own = WebServer(cast(KubeClient, Cluster()), CONTRACT, WebOptions(0, tmp_path))
    with pytest.raises(ConfigError, match=str(tmp_path)):
        await own.start()
    await own.stop()


def test_in_clear_it_stays_in_the_pod(tmp_path: Path) -> None:
    assert WebOptions().host == "127.0.0.1"
    assert WebOptions(tls=tmp_path).host is None
