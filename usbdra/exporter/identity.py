# SPDX-License-Identifier: Apache-2.0
"""The node's certificate on its way from the agent, which reads the files, to the exporter.

Owns both halves: reading the files, and TLS contexts made of what came. The key is never in a
file that the exporter's user could read; the exporter asks again before a handshake, so a
rotation needs no signal and no timer. Must not know sockets.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from usbdra.errors import ConfigError, UsbdraError
from usbdra.exporter.messages import MAX_PEM, Pems
from usbdra.transport import tls
from usbdra.transport.ktls import Role
from usbdra.transport.tls import TlsContext, TlsFiles

_log = logging.getLogger(__name__)

FRESH_SECONDS = 1.0
"""How long what the agent said is good: a flood of peers asks it once in this time."""


def read_pems(files: TlsFiles) -> Pems:
    """The files as they are now; `stamp` tells one set from another. Raises ConfigError."""
    cert, key, ca = (_read(path) for path in (files.cert, files.key, files.ca))
    stamp = hashlib.sha256(b"\0".join((cert, key, ca))).hexdigest()
    return Pems(stamp, *(text.decode("ascii", "replace") for text in (cert, key, ca)))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_PEM + 1)
    except OSError as exc:
        raise ConfigError(f"cannot use {path}: {exc.strerror}") from exc
    if len(data) > MAX_PEM:
        raise ConfigError(f"{path} has more than {MAX_PEM} bytes; that is no certificate or key")
    return data


class RemoteIdentity:
    """What the listener shows in its handshakes, asked for with `ask` (RemoteBroker.identity)."""

    def __init__(self, ask: Callable[[str], Awaitable[Pems]]) -> None:
        self._ask = ask
        self._stamp = ""
        self._context: TlsContext | None = None
        self._good_until = 0.0
        self._asking = asyncio.Lock()

    def context(self, role: Role) -> TlsContext:
        """See server.Contexts; the exporter only ever answers."""
        if self._context is None or role is not Role.SERVER:
            raise _none_yet()
        return self._context

    async def refresh(self) -> None:
        """Ask for a newer one, unless that was done a moment ago; without answer keep this one."""
        try:
            await self.load()
        except UsbdraError as error:
            _log.warning("keeping the previous certificate: %s", str(error))

    async def load(self) -> None:
        """As `refresh`. Raises UsbdraError when there is none, or none that can be used."""
        clock = asyncio.get_running_loop().time
        async with self._asking:
            if clock() < self._good_until:
                if self._context is None:
                    raise _none_yet()
                return
            try:
                pems = await self._ask(self._stamp)
                if pems.stamp != self._stamp:
                    self._context = _context_of(pems)
                    self._stamp = pems.stamp
            finally:
                self._good_until = clock() + FRESH_SECONDS


def _none_yet() -> ConfigError:
    return ConfigError("no certificate came from this node's agent yet")


def _context_of(pems: Pems) -> TlsContext:
    """A server's context."""
    cert, key, ca = (text.encode("ascii", "replace") for text in (pems.cert, pems.key, pems.ca))
    return tls.context_of(cert, key, ca, Role.SERVER)
