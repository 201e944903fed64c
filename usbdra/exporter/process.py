# SPDX-License-Identifier: Apache-2.0
"""The unprivileged exporter as a process: certificate from the agent, then the listener.

Owns the order of its start and its patience: the agent may come later, the port may be an older
instance's for a while. Must not be privileged.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

from usbdra.dumping import StateDump
from usbdra.errors import ConfigError, UsbdraError
from usbdra.exporter.counts import CountsServer
from usbdra.exporter.identity import RemoteIdentity
from usbdra.exporter.policy import AccessPolicy
from usbdra.exporter.remote import RemoteBroker
from usbdra.exporter.server import ExporterServer, Listen
from usbdra.tracing.spans import OFF, Tracer
from usbdra.transport.ktls import Encryption

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_PAUSES = (0.5, 5.0)
"""Seconds from the first to the longest pause between two tries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterOptions:
    """What one exporter is told. `agent_uid` is the user whose socket it believes."""

    socket: Path
    listen: Listen
    agent_uid: int = 0
    policy: AccessPolicy = field(default_factory=AccessPolicy)
    encryption: Encryption = Encryption.REQUIRED
    counts: str = ""
    """Name of the socket on which the agent asks for our numbers; "" for none."""


def require_no_privilege() -> None:
    """Raise ConfigError for root: what faces the network must not be able to touch a device."""
    if os.geteuid() == 0:
        raise ConfigError(
            "the exporter faces the network and runs without privilege: start it as another user "
            "(in the chart: exporter.uid), or let the agent export by --exporter=inprocess"
        )


async def run(options: ExporterOptions, dump: StateDump, tracer: Tracer = OFF) -> None:
    """Serve until cancelled. Running links are the kernel's and go on when this ends."""
    broker = RemoteBroker(options.socket, options.agent_uid)
    identity = RemoteIdentity(broker.identity)
    try:
        await _until("no certificate from the agent yet", identity.load)
        server = ExporterServer(
            broker,
            options.listen,
            identity=identity,
            encryption=options.encryption,
            refresh=identity.refresh,
            policy=options.policy,
            tracer=tracer,
        )
        await _until("not listening yet", server.start)
        dump.add("connections", lambda: {**asdict(server.stats), "open": server.open_connections})
        counts = CountsServer(options.counts, options.agent_uid, lambda: server.stats)
        try:
            if options.counts:
                await _until("numbers are not told yet", counts.start)
            _, port = server.addresses[0]
            _log.info("exporter listens", extra={"port": port, "uid": os.geteuid()})
            await asyncio.Event().wait()
        finally:
            await counts.stop()
            await server.close()
    finally:
        broker.close()


async def _until(what: str, attempt: Callable[[], Awaitable[_T]]) -> _T:
    """The first success, with growing pauses between tries; each kind of failure is told once."""
    pause, longest = _PAUSES
    while True:
        try:
            return await attempt()
        except (UsbdraError, OSError) as error:
            # The text alone: a record that is kept must not keep what the attempt held.
            text = f"{what}: {error}"
            _log.warning("%s", text, extra={"reason": _reason(error), "once": text})
        await asyncio.sleep(pause)
        pause = min(pause * 2, longest)


def _reason(error: UsbdraError | OSError) -> str:
    return error.reason if isinstance(error, UsbdraError) else UsbdraError.reason
