# SPDX-License-Identifier: Apache-2.0
"""The agent's metrics: what counts, what looks up, and who may ask.

Owns composition. With no address for them nothing is counted and nothing listens. On loopback
the processes of this host may ask. On any other address the answer is encrypted with the node's
own certificate, and the API server says whether the caller's token may `get` /metrics: this
process is root, and what it listens on gets no further than that from a stranger.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from usbdra.agent.devices import Timings
from usbdra.agent.facts import AgentFacts, Parts
from usbdra.agent.options import AgentOptions
from usbdra.agent.supervisor import Cause
from usbdra.exporter.rate import Bucket
from usbdra.kube.client import KubeClient
from usbdra.kube.reviews import PathReview
from usbdra.metrics.families import (
    AGENT,
    ATTACH_PHASES,
    OK,
    PREPARE_PHASES,
    UNPREPARE_PHASES,
    phases,
)
from usbdra.metrics.meters import SILENT, Counting, Meters
from usbdra.metrics.server import MetricsServer

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)

_REVIEWS_PER_SECOND, _REVIEWS_BURST = 2.0, 10


class Metering:
    """One agent's. The methods that parts are given count; `serve` answers."""

    def __init__(self, options: AgentOptions) -> None:
        self._options = options
        self._meters = Meters(AGENT) if options.metrics is not None else None
        self._counting: Counting = self._meters or SILENT

    def answered(self, verb: str, result: str) -> None:
        """See kube/client.py OnAnswer."""
        self._counting.count("usbdra_api_requests_total", verb, result)

    def done(self, what: str, result: str, took: Mapping[str, float]) -> None:
        """See plugin/prepare.py OnDone. Only what succeeded says how long it takes."""
        self._counting.count(f"usbdra_{what}s_total", result)
        known = PREPARE_PHASES if what == "prepare" else UNPREPARE_PHASES
        if result == OK:
            for phase, seconds in phases(took, known).items():
                self._counting.observe(f"usbdra_{what}_duration_seconds", seconds, phase)
        elif what == "prepare":
            over = [phase for phase in PREPARE_PHASES[:-1] if phase in took]
            self._counting.count("usbdra_prepare_failures_total", over[-1] if over else "begin")

    def attached(self, timings: Timings) -> None:
        """A device of another node came; its node's own phases are what that node says."""
        for phase, seconds in timings:
            if phase in ATTACH_PHASES:
                self._counting.observe("usbdra_attach_duration_seconds", seconds, phase)

    def lost(self, cause: Cause) -> None:
        """See agent/supervisor.py."""
        self._counting.count("usbdra_losses_total", cause.value)

    def tried(self, result: str) -> None:
        """See agent/supervisor.py."""
        self._counting.count("usbdra_reattachments_total", result)

    def decided(self, result: str) -> None:
        """See exporter/guard.py. Called from the desk's thread, as counters may be."""
        self._counting.count("usbdra_grants_total", result)

    async def serve(self, api: KubeClient, parts: Parts) -> None:
        """Answer until cancelled; return at once when nobody wants to ask."""
        if self._meters is None or self._options.metrics is None:
            return
        for source in AgentFacts(self._options, parts).sources:
            self._meters.read(source)
        address = self._options.metrics
        if _is_loopback(address[0]):
            server = MetricsServer(address, self._meters.text)
        else:
            take = Bucket(_REVIEWS_PER_SECOND, _REVIEWS_BURST).take
            server = MetricsServer(
                address,
                self._meters.text,
                allowed=PathReview(api, "/metrics", take).status,
                tls=lambda: _context(parts.pki),
            )
        await server.run()


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _context(pki: Callable[[], Path]) -> ssl.SSLContext:
    """TLS 1.3 as this node. Raises OSError while there is no certificate."""
    import ssl

    directory = pki().resolve()  # one set: not the key of the next with the certificate of this
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    return context
