# SPDX-License-Identifier: Apache-2.0
"""What an agent's metrics say that is looked up when they are asked for.

Owns the way from the parts' own state to facts; each source reads one part. Must not count.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from usbdra import __version__
from usbdra.agent.options import AgentOptions
from usbdra.agent.ports import PortCount
from usbdra.discovery.snapshot import Snapshot
from usbdra.errors import UsbdraError
from usbdra.exporter import counts
from usbdra.metrics import families
from usbdra.metrics.meters import Fact, spreader
from usbdra.pki.expiry import life
from usbdra.slices.publish import Stats
from usbdra.state.claims import ClaimRecord, DeviceRecord
from usbdra.transport.measure import Counters
from usbdra.types import Endpoints, Offer

_spread = spreader(families.AGENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Where the state is."""

    ready: Callable[[], bool]
    snapshot: Callable[[], Snapshot]
    ports: PortCount
    records: Callable[[], Iterable[ClaimRecord]]
    restoring: Callable[[], int]
    holders: Callable[[], Mapping[str, str]]
    """Who has which device of this node, by bus id."""
    queued: Callable[[], int]
    """Reports of claims that wait for the API server."""
    links: Callable[[], Mapping[Endpoints, Counters]]
    """May block."""
    slices: Callable[[], Stats | None]
    pki: Callable[[], Path]


class AgentFacts:
    """Sources for Meters.read."""

    def __init__(self, options: AgentOptions, parts: Parts) -> None:
        self._options = options
        self._parts = parts
        self.sources = (
            self.node, self.devices, self.ports, self.claims, self.links, self.slices,
            self.certificate, self.exporter,
        )  # fmt: skip

    async def node(self) -> Iterable[Fact]:
        """Which agent this is, and whether it is ready."""
        return [
            Fact("usbdra_build_info", 1, (__version__, "agent")),
            Fact("usbdra_agent_ready", self._parts.ready()),
            *_spread("usbdra_visibility_info", {(self._options.visibility,): 1}),
        ]

    async def devices(self) -> Iterable[Fact]:
        """Devices by speed and offer."""
        found = Counter(_kind(offer) for offer in self._parts.snapshot().offers)
        return _spread("usbdra_devices", found)

    async def ports(self) -> Iterable[Fact]:
        """Ports by hub and state."""
        published = self._parts.ports.published()
        return [
            *_spread("usbdra_ports", self._parts.ports.states()),
            *_spread("usbdra_ports_published", {(h.value,): n for h, n in published.items()}),
        ]

    async def claims(self) -> Iterable[Fact]:
        """Claims by phase, and sessions of other nodes."""
        phases = Counter((record.phase.value,) for record in self._parts.records())
        return [
            *_spread("usbdra_claims", phases),
            Fact("usbdra_claims_restoring", self._parts.restoring()),
            Fact("usbdra_sessions", len(self._parts.holders())),
        ]

    async def links(self) -> Iterable[Fact]:
        """What the kernel says of each link. Without any it is not asked."""
        held = {d.held.link: d for r in self._parts.records() for d in r.devices if d.held}
        links = {link: device for link, device in held.items() if link is not None}
        counted = await asyncio.to_thread(self._parts.links) if links else {}
        running = [(links[link], found) for link, found in counted.items() if link in links]
        return [
            Fact("usbdra_links", len(running)),
            *(fact for device, found in running for fact in _link(device, found)),
        ]

    async def slices(self) -> Iterable[Fact]:
        """What publishing has cost."""
        stats = self._parts.slices() or Stats()
        return [
            Fact("usbdra_slice_writes_total", stats.writes),
            Fact("usbdra_slice_deletes_total", stats.deletes),
            Fact("usbdra_slice_retries_total", stats.errors),
        ]

    async def certificate(self) -> Iterable[Fact]:
        """The node's certificate; none is no fact."""
        found = await asyncio.to_thread(life, self._parts.pki() / "tls.crt")
        return certificate("node", found)

    async def exporter(self) -> Iterable[Fact]:
        """The exporter's own numbers, where it is a process of its own."""
        options = self._options
        if options.exporter != "process":
            return []
        try:
            stats = await counts.ask(counts.name_of(options.pod_uid), options.exporter_uid)
        except UsbdraError:
            return [Fact("usbdra_exporter_up", 0)]
        return [
            Fact("usbdra_exporter_up", 1),
            Fact("usbdra_exporter_connections_total", stats.accepted),
            Fact("usbdra_exporter_dropped_total", stats.over_limit, ("OverLimit",)),
            Fact("usbdra_exporter_dropped_total", stats.refused_networks, ("Network",)),
            Fact("usbdra_exporter_failed_total", stats.failed),
        ]


def certificate(which: str, found: tuple[float, float] | None) -> list[Fact]:
    """Facts of a certificate: (when it ends, how long it holds in all), seconds."""
    if found is None:
        return []
    return [
        Fact("usbdra_certificate_expiry_timestamp_seconds", found[0], (which,)),
        Fact("usbdra_certificate_lifetime_seconds", found[1], (which,)),
    ]


def _kind(offer: Offer) -> tuple[str, str]:
    reach = "cluster" if offer.exportable else "local" if offer.usable else "none"
    speed = offer.device.speed.speed_class
    return speed.value if speed is not None else "unknown", reach


def _link(device: DeviceRecord, found: Counters) -> Iterable[Fact]:
    assert device.held is not None
    labels = (str(device.held.port), str(device.node))
    yield Fact("usbdra_link_sent_bytes_total", found.sent, labels)
    yield Fact("usbdra_link_received_bytes_total", found.received, labels)
    yield Fact("usbdra_link_retransmits_total", found.retransmits, labels)
    yield Fact("usbdra_link_round_trip_seconds", found.rtt / 1e6, labels)
    yield Fact("usbdra_link_encrypted", found.encrypted, labels)
