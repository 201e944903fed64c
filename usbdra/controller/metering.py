# SPDX-License-Identifier: Apache-2.0
"""The controller's metrics: what counts and what looks up.

Owns composition. The listener is in a pod's network and answers whoever reaches it: numbers
without a name of namespace, claim or device. Hosts outside the cluster, which an administrator
has named one by one, are told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from usbdra import __version__
from usbdra.controller.world import Numbers
from usbdra.metrics.families import CONTROLLER
from usbdra.metrics.meters import SILENT, Counting, Fact, Meters, spreader
from usbdra.metrics.server import MetricsServer

if TYPE_CHECKING:
    from usbdra.controller.outsidehost import HostFacts

_spread = spreader(CONTROLLER)


class Metering:
    """One controller's. `address` None: nothing is counted, nothing listens."""

    def __init__(self, address: tuple[str, int] | None) -> None:
        self._address = address
        self._meters = Meters(CONTROLLER) if address is not None else None
        self._counting: Counting = self._meters or SILENT
        self._queues: dict[str, Callable[[], tuple[int, int]]] = {}
        self._world: Callable[[], Numbers] | None = None
        self._authority: Callable[[], tuple[float, float] | None] = lambda: None
        self._outside: Callable[[], Sequence[HostFacts]] = tuple
        self._leading: Callable[[], bool] = lambda: False

    def answered(self, verb: str, result: str) -> None:
        """See kube/client.py OnAnswer."""
        self._counting.count("usbdra_api_requests_total", verb, result)

    def looked(self, queue: str, result: str, seconds: float) -> None:
        """See controller/queue.py OnDone."""
        self._counting.count("usbdra_queue_results_total", queue, result)
        self._counting.observe("usbdra_queue_duration_seconds", seconds, queue)

    def looked_outside(self, result: str) -> None:
        """A host outside was asked: `ok`, or the reason that there was no answer."""
        self._counting.count("usbdra_outside_looks_total", result)

    def restarted(self, part: str) -> None:
        """A part ended and is made anew."""
        self._counting.count("usbdra_part_restarts_total", part)

    def follow_queue(self, queue: str, look: Callable[[], tuple[int, int]]) -> None:
        """`look` gives the queue's depth and failing keys. A later term's replaces it."""
        self._queues[queue] = look

    def follow_world(self, look: Callable[[], Numbers]) -> None:
        """`look` gives what is known of the cluster. A later term's replaces it."""
        self._world = look

    def follow_authority(self, look: Callable[[], tuple[float, float] | None]) -> None:
        """`look` gives the life of the CA that signs, see pki/expiry.py."""
        self._authority = look

    def follow_outside(self, look: Callable[[], Sequence[HostFacts]]) -> None:
        """`look` gives what is known of hosts outside. A later term's replaces it."""
        self._outside = look

    async def serve(self, leading: Callable[[], bool]) -> None:
        """Answer until cancelled; return at once when nobody wants to ask."""
        if self._meters is None or self._address is None:
            return
        self._leading = leading
        self._meters.read(self._facts)
        await MetricsServer(self._address, self._meters.text).run()

    async def _facts(self) -> Iterable[Fact]:
        """Of a controller that waits to lead only that it waits."""
        leads = self._leading()
        queues = {name: look() for name, look in self._queues.items()} if leads else {}
        found = [
            Fact("usbdra_build_info", 1, (__version__, "controller")),
            Fact("usbdra_leader", leads),
            *_spread("usbdra_queue_depth", {(name,): two[0] for name, two in queues.items()}),
            *_spread("usbdra_queue_failing", {(name,): two[1] for name, two in queues.items()}),
        ]
        return found + self._of_leader() if leads else found

    def _of_leader(self) -> list[Fact]:
        found: list[Fact] = []
        if self._world is not None:
            seen = self._world()
            reach = {(name,): number for name, number in seen.reach.items()}
            found += [
                *_spread("usbdra_published_devices", reach),
                Fact("usbdra_publishing_nodes", seen.nodes),
                Fact("usbdra_node_devices", seen.devices),
                Fact("usbdra_assigned_devices", seen.assigned),
            ]
        if (life := self._authority()) is not None:
            found += [
                Fact("usbdra_certificate_expiry_timestamp_seconds", life[0], ("ca",)),
                Fact("usbdra_certificate_lifetime_seconds", life[1], ("ca",)),
            ]
        return found + _of_hosts(self._outside())


def _of_hosts(hosts: Sequence[HostFacts]) -> list[Fact]:
    ready = sum(one.ready for one in hosts)
    states = {("ready",): ready, ("silent",): len(hosts) - ready}
    found = _spread("usbdra_outside_hosts", states)
    for one in hosts:
        values = {
            "ready": one.ready,
            "devices": one.devices,
            "seen_timestamp_seconds": one.seen,
            "certificate_expiry_timestamp_seconds": one.until,
        }
        found += [
            Fact(f"usbdra_outside_host_{name}", value, (one.host,))
            for name, value in values.items()
            if value is not None
        ]
    return found
