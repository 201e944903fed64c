# SPDX-License-Identifier: Apache-2.0
"""The exporter's process: what it refuses to be, and its patience."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.broker import FakeBroker
from tests.fakes.certificates import certificates
from tests.waiting import until
from usbdra.dumping import StateDump
from usbdra.errors import ConfigError
from usbdra.exporter import process
from usbdra.exporter.desk import Desk
from usbdra.exporter.identity import read_pems
from usbdra.exporter.server import ExporterServer, Listen
from usbdra.transport.ktls import Encryption
from usbdra.transport.tls import TlsFiles


def test_it_refuses_to_be_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 64241)
    process.require_no_privilege()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(ConfigError, match="runs without privilege: start it as another user"):
        process.require_no_privilege()


async def test_it_waits_for_the_agent_and_for_the_port(
    broker: FakeBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The agent may come later; an older exporter may have the port for a while."""
    caplog.set_level("INFO", "usbdra.exporter")
    monkeypatch.setattr(process, "_PAUSES", (0.01, 0.01))
    monkeypatch.setattr("usbdra.exporter.identity.FRESH_SECONDS", 0.0)
    old = ExporterServer(broker, Listen(("127.0.0.1",), 0), identity=None, plain=True)
    await old.start()
    port = old.addresses[0][1]
    options = process.ExporterOptions(
        socket=tmp_path / "agent.sock",
        agent_uid=os.geteuid(),
        listen=Listen(("127.0.0.1",), port, reuse_port=True),
        encryption=Encryption.OFF,
    )
    running = asyncio.create_task(process.run(options, StateDump()))

    async def said(text: str) -> None:
        await until(lambda: text in caplog.text)

    await said("no certificate from the agent yet: this node's agent does not answer")
    files = TlsFiles.in_directory(certificates().a)
    desk = Desk(broker, options.socket, uid=os.geteuid(), pems=lambda: read_pems(files))
    async with desk:
        await said(f"not listening yet: cannot listen on 127.0.0.1 port {port}: Address already")
        await old.close()
        await said("exporter listens")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


class NoKernelTls:
    """A kernel without the module tls, where nobody may load it."""

    def attach_ulp(self, sock: int, /) -> None:
        raise FileNotFoundError(2, "attach_ulp: No such file or directory")

    def set_keys(self, *arguments: object) -> None:
        raise AssertionError("no keys for a kernel without TLS")


async def test_without_kernel_tls_it_listens_only_where_that_is_allowed(
    broker: FakeBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "usbdra.exporter")
    monkeypatch.setattr(process, "_PAUSES", (0.01, 0.01))
    monkeypatch.setattr("usbdra.transport.ktls.native", NoKernelTls)
    files = TlsFiles.in_directory(certificates().a)
    socket = tmp_path / "agent.sock"
    me = os.geteuid()
    async with Desk(broker, socket, uid=me, pems=lambda: read_pems(files)):
        for encryption, said in (
            (
                Encryption.REQUIRED,
                "not listening yet: the kernel has no TLS; load it with `modprobe",
            ),
            (Encryption.ALLOWED, "exporter listens"),
        ):
            options = process.ExporterOptions(
                socket=socket,
                agent_uid=me,
                listen=Listen(("127.0.0.1",), 0),
                encryption=encryption,
            )
            running = asyncio.create_task(process.run(options, StateDump()))
            await until(lambda text: text in caplog.text, said)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running


def test_it_loads_nothing_that_touches_devices_or_the_api() -> None:
    code = "import sys, usbdra.cli.commands.exporter, usbdra.exporter.process; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "usbdra.exporter.server" in loaded
    heavy = {"kubernetes", "grpc", "pyroute2", "cryptography"}
    ours = {f"usbdra.{name}" for name in ("agent", "kube", "discovery", "vhci", "state")}
    acting = {"usbdra.exporter.bind", "usbdra.exporter.stubhost", "usbdra._native.stub"}
    assert loaded & (heavy | ours | acting) == set()
