# SPDX-License-Identifier: Apache-2.0
"""The real `usbdra exporter` as a process of another user, in front of this process's agent.

Run by root it becomes `nobody`; without root it stays this user, which it is separated from by
its process alone. Its directory is open to that user, and holds only the agent's socket.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from types import MappingProxyType, TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
EMPTY: Mapping[str, str] = MappingProxyType({})
UID = NOBODY if os.geteuid() == 0 else os.geteuid()


class ExporterProcess:
    """`async with`: running and listening on `port` of 127.0.0.1 until the end, or `kill()`."""

    def __init__(self, *options: str, variables: Mapping[str, str] = EMPTY) -> None:
        self.directory = Path(mkdtemp(prefix="usbdra-exporter-"))
        self.directory.chmod(0o711)
        self.socket = self.directory / "agent.sock"
        self.port = free_port()
        self._options = options
        self._variables = variables
        self._log = self.directory / "log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """What it has written so far."""
        return self._log.read_text() if self._log.exists() else ""

    def status(self, key: str) -> str:
        """A line of its /proc/PID/status."""
        assert self.process is not None
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(one for one in text.splitlines() if one.startswith(key)).split(":")[1].strip()

    async def start(self) -> None:
        command = [interpreter(), "-m", "usbdra", "exporter", f"--socket={self.socket}"]
        command += [f"--agent-uid={os.geteuid()}", "--listen=127.0.0.1", f"--port={self.port}"]
        command += ["--encryption=Allowed", *self._options]
        await self._reap()
        with self._log.open("wb") as log:
            self.process = await asyncio.to_thread(
                _start, command, self._variables, stdout=log, stderr=log
            )
        async with asyncio.timeout(45):
            while '"exporter listens"' not in self.log:
                assert self.process.poll() is None, self.log
                await asyncio.sleep(0.02)

    def kill(self) -> None:
        """As the kernel does when memory is short."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)

    async def _reap(self) -> None:
        if self.process is not None:
            self.process.kill()
            await asyncio.to_thread(self.process.wait)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._end()

    async def _end(self) -> None:
        await self._reap()
        shutil.rmtree(self.directory)


def _start(
    command: list[str], variables: Mapping[str, str] = EMPTY, **options: Any
) -> subprocess.Popen[bytes]:
    """The command as the exporter's user, with this run's packages and nothing else of ours."""
    if os.geteuid() == 0:
        options |= {"user": UID, "group": UID, "extra_groups": []}
    path = os.pathsep.join((str(ROOT), sysconfig.get_path("purelib")))
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    env |= variables
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd="/", env=env, **options)


@cache
def interpreter() -> str:
    """A Python that the exporter's user can run: ours, or the system's where ours is in a home."""
    same = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (sys.executable, same):
        try:
            with _start([path, "-c", "import click, usbdra._native.sockfd"]) as process:
                if process.wait(45) == 0:
                    return path
        except OSError:
            continue
    raise RuntimeError(f"user {UID} can run neither {sys.executable} nor {same}")


def free_port() -> int:
    """A TCP port of loopback that nobody has right now."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])
