# SPDX-License-Identifier: Apache-2.0
"""How other nodes reach this node's devices: through the unprivileged exporter, or directly.

Owns the composition of both ways. With `process` this agent opens no port: it answers the
exporter's container on a Unix socket and believes it nothing it can check. With `inprocess` the
listener runs here, in the privileged process. Decides nothing itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from usbdra.agent.options import AgentOptions
from usbdra.errors import EncryptionUnavailable, UsbdraError
from usbdra.exporter.broker import Broker
from usbdra.exporter.desk import Desk
from usbdra.exporter.deskthread import DeskThread
from usbdra.exporter.evidence import Addresses, Evidence
from usbdra.exporter.guard import GuardedBroker, OnRefused, Vouch
from usbdra.exporter.identity import read_pems
from usbdra.exporter.messages import Pems
from usbdra.exporter.policy import AccessPolicy, parse_networks
from usbdra.exporter.server import ExporterServer, Listen
from usbdra.tracing.spans import OFF, Tracer
from usbdra.transport import ktls
from usbdra.transport.tls import Identity, LateIdentity, TlsFiles

log = logging.getLogger(__name__)


class Export:
    """Serves `broker` as the options say. `pki` is the directory of the certificate right now,
    `identity` what others of this process have made of it."""

    def __init__(
        self,
        options: AgentOptions,
        broker: Broker,
        *,
        pki: Callable[[], Path],
        identity: Callable[[], Identity] | None = None,
        addresses: Addresses,
        on_refused: OnRefused | None = None,
        count: Callable[[str], None] = lambda result: None,
        tracer: Tracer = OFF,
    ) -> None:
        self._options = options
        self._tracer = tracer
        self._pki = pki
        self._identity = identity or LateIdentity(lambda: TlsFiles.in_directory(pki()))
        self._policy = AccessPolicy(networks=parse_networks(options.allowed_cidrs))
        # In both ways: a node that was removed, or a stolen key used from elsewhere, is refused.
        vouch = self._evidence(addresses)
        self._broker = GuardedBroker(broker, vouch=vouch, on_refused=on_refused, count=count)

    async def run(self, ready: asyncio.Event | None = None) -> None:
        """Serve until cancelled. `ready`: when the node's certificate is there."""
        if self._options.exporter == "process":
            await self._serve_exporter()
        else:
            if ready is not None:
                await ready.wait()
            await self._listen()

    async def _serve_exporter(self) -> None:
        """The exporter asks again while there is no certificate yet."""
        options = self._options
        try:
            # The first look has the kernel load its TLS, which the exporter may not (tcp_ulp.c).
            ktls.protocols(options.encryption, ktls.native())
        except EncryptionUnavailable as error:
            log.error("devices are not exported: %s", error, extra={"reason": error.reason})

        def desk(broker: Broker) -> Desk:
            return Desk(
                broker,
                options.exporter_socket,
                uid=options.exporter_uid,
                pems=self._pems,
                tracer=self._tracer,
            )

        async with DeskThread(self._broker, desk) as serving:
            log.info("waiting for the exporter", extra={"socket": str(options.exporter_socket)})
            await serving.wait()

    async def _listen(self) -> None:
        """Without certificates or kernel TLS say so and try again."""
        options = self._options
        pause = 1.0
        while True:
            try:
                server = ExporterServer(
                    self._broker,
                    Listen(options.listen, options.port, reuse_port=True),
                    identity=self._identity(),
                    encryption=options.encryption,
                    policy=self._policy,
                    tracer=self._tracer,
                )
                await server.start()
                break
            except UsbdraError as error:
                log.warning("devices are not exported yet: %s", error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 30.0)
        try:
            log.info("exporter listens", extra={"port": options.port})
            await asyncio.Event().wait()
        finally:
            await server.close()

    def _pems(self) -> Pems:
        # One resolved directory: a set that is replaced meanwhile is not mixed with the new one.
        return read_pems(TlsFiles.in_directory(self._pki().resolve()))

    def _evidence(self, addresses: Addresses) -> Vouch:
        from usbdra._native import ktls as kernel

        options = self._options
        return Evidence(
            options.node, options.port, addresses, self._policy, options.encryption, kernel
        )
