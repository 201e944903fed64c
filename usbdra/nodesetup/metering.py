# SPDX-License-Identifier: Apache-2.0
"""Metrics of a node's preparation: its modules, its label.

Owns composition. The listener is in a pod's network and answers whoever reaches it: the states of
kernel modules, which the node's label tells everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from usbdra import __version__
from usbdra.metrics.families import NODE_SETUP
from usbdra.metrics.meters import SILENT, Counting, Fact, Meters, spreader
from usbdra.metrics.server import MetricsServer
from usbdra.nodesetup.state import Seen

_spread = spreader(NODE_SETUP)


class Metering:
    """One node's. `address` None: nothing is counted, nothing listens."""

    def __init__(self, address: tuple[str, int] | None) -> None:
        self._address = address
        self._meters = Meters(NODE_SETUP) if address is not None else None
        self._counting: Counting = self._meters or SILENT

    def answered(self, verb: str, result: str) -> None:
        """See kube/client.py OnAnswer."""
        self._counting.count("usbdra_api_requests_total", verb, result)

    async def serve(self, seen: Callable[[], Seen]) -> None:
        """Answer until cancelled; return at once when nobody wants to ask."""
        if self._meters is None or self._address is None:
            return

        async def source() -> Iterable[Fact]:
            return facts(seen())

        self._meters.read(source)
        await MetricsServer(self._address, self._meters.text).run()


def facts(seen: Seen) -> list[Fact]:
    """What a look found, as metrics; before the first look only who we are."""
    found = [Fact("usbdra_build_info", 1, (__version__, "node-setup"))]
    if seen.verdict is None:
        return found
    states = {(module.name, module.state.value): 1.0 for module in seen.modules}
    return [
        *found,
        Fact("usbdra_node_prepared", seen.verdict.ready),
        Fact("usbdra_node_labelled", seen.labelled),
        *_spread("usbdra_node_state", {(seen.verdict.reason,): 1.0}),
        *_spread("usbdra_module_state", states),
    ]
