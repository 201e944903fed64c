# SPDX-License-Identifier: Apache-2.0
"""Answers the kubelet's probes on a Unix socket of this very agent, and asks there.

A port would be shared by the old and the new agent of an upgrade, and one would answer for the
other. Each state is also a file beside the socket, `<socket>.startup` and `<socket>.ready`: the
probes that come every few seconds are a `test -e`, which costs a busy node nothing. Owns the
socket, the files and the words `live`, `startup`, `ready`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

PROBES = ("live", "startup", "ready")
_TIMEOUT = 5.0


class Probes:
    """States by probe; each starts as False. `live` is True once the loop answers at all."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._states: dict[str, bool] = {"live": True, "startup": False, "ready": False}
        self._server: asyncio.Server | None = None
        self._alive: Callable[[], bool] = lambda: True

    def live_while(self, alive: Callable[[], bool]) -> None:
        """Say `live` only while this is true; it is asked at each probe and must not block."""
        self._alive = alive

    def set(self, probe: str, state: bool = True) -> None:
        """Write down what a probe is told from now on."""
        self._states[probe] = state
        if state:
            self._marker(probe).touch(mode=0o600)
        else:
            self._marker(probe).unlink(missing_ok=True)

    @property
    def states(self) -> Mapping[str, bool]:
        """What each probe would be told."""
        return dict(self._states)

    async def start(self) -> None:
        """Listen; a socket that an earlier agent of the same pod left is replaced."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._clear()
        self._server = await asyncio.start_unix_server(self._answer, self._path)

    async def stop(self) -> None:
        """Stop listening and remove the socket."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._clear()

    def _marker(self, probe: str) -> Path:
        return self._path.with_name(f"{self._path.name}.{probe}")

    def _clear(self) -> None:
        """Remove the socket and the files, those of an earlier run of the same pod too."""
        for path in (self._path, *(self._marker(probe) for probe in PROBES)):
            path.unlink(missing_ok=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, ValueError):
            async with asyncio.timeout(_TIMEOUT):
                word = (await reader.readline()).decode(errors="replace").strip()
            good = self._states.get(word) and (word != "live" or self._alive())
            writer.write(b"ok\n" if good else b"no\n")
            await writer.drain()
        writer.close()


def socket_path(run_dir: Path, pod_uid: str) -> Path:
    """Where the agent of this pod answers its probes."""
    return run_dir / f"probe-{pod_uid[:40]}.sock"


def ask(path: Path, probe: str) -> bool:
    """One probe of the agent that listens at `path`; False when it does not answer in time."""
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(_TIMEOUT)
            sock.connect(str(path))
            sock.sendall(f"{probe}\n".encode())
            return sock.recv(16) == b"ok\n"
    except OSError:
        return False
