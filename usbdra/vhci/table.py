# SPDX-License-Identifier: Apache-2.0
"""Status rows as ports, and what the ports of a node add up to.

Owns the meaning of a row: its state, its hub, its place on the root hub. Pure: rows come in as
arguments, nothing is read here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from usbdra.errors import NotFound
from usbdra.types import BusId, Hub, Port, PortId, PortState


class StatusRow(Protocol):
    """A row as `_native.vhci` gives it: numbers as in the text."""

    @property
    def port(self) -> int: ...  # noqa: D102
    @property
    def controller(self) -> int: ...  # noqa: D102
    @property
    def hub(self) -> int: ...  # noqa: D102
    @property
    def state(self) -> int: ...  # noqa: D102
    @property
    def speed(self) -> int: ...  # noqa: D102
    @property
    def devid(self) -> int: ...  # noqa: D102
    @property
    def sockfd(self) -> int: ...  # noqa: D102
    @property
    def local_busid(self) -> bytes: ...  # noqa: D102
    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class RowCodes:
    """The numbers that a row uses for hubs and for "no socket"; its states are the kernel's."""

    hub_high: int
    hub_super: int
    sockfd_none: int


@dataclass(frozen=True, slots=True)
class HubCount:
    """Ports of one hub over all controllers. `total` = `capacity` + `broken`."""

    total: int
    free: int
    broken: int

    @property
    def capacity(self) -> int:
        """Ports that work: those that carry a device now and those that could."""
        return self.total - self.broken

    @property
    def used(self) -> int:
        """Working ports that are taken, by us or by a foreign tool."""
        return self.capacity - self.free


# usbip_common.h, enum usbip_device_status: VDEV_ST_NULL is 4.
_STATES = {
    4: PortState.FREE,
    5: PortState.ATTACHING,
    6: PortState.USED,
    7: PortState.ERROR,
}


class KnownPorts:
    """Rows as ports for whoever looks again and again: nearly all are the same at the next look.

    Only rows of the last look are kept. What a port was is no use any more: each attachment has a
    socket and a device number of its own, so that rows never come back.
    """

    def __init__(self, codes: RowCodes) -> None:
        self._codes = codes
        self._known: dict[StatusRow, Port] = {}

    def of(self, rows: Iterable[StatusRow]) -> tuple[Port, ...]:
        """The rows of one look, all of them, as ports in the order given."""
        known, codes = self._known, self._codes
        self._known = now = {row: known.get(row) or port_of(row, codes) for row in rows}
        return tuple(now.values())


def port_of(row: StatusRow, codes: RowCodes) -> Port:
    """One row as a port.

    A used row without a socket is STOPPING: vhci_hcd.c `vhci_shutdown_connection` gives the
    socket up before `vhci_device_reset` frees the row. Only used rows show a socket at all.
    """
    hubs = {codes.hub_high: Hub.HIGH, codes.hub_super: Hub.SUPER}
    busid = row.local_busid.decode("ascii", "replace")
    return Port(
        port=PortId(row.port),
        controller=row.controller,
        hub=hubs.get(row.hub),
        state=_state_of(row, codes),
        speed_code=row.speed,
        devid=row.devid,
        local_busid=BusId(busid) if busid else None,
    )


def _state_of(row: StatusRow, codes: RowCodes) -> PortState:
    state = _STATES[row.state]
    if state is PortState.USED and row.sockfd == codes.sockfd_none:
        return PortState.STOPPING
    return state


def hub_of(port: Port) -> Hub:
    """The port's hub. Kernels before 4.13 name none and have high-speed ports only."""
    return port.hub or Hub.HIGH


def count_hubs(ports: Iterable[Port], stuck: Collection[PortId] = ()) -> dict[Hub, HubCount]:
    """What each hub has. Ports in error, and those in `stuck`, are broken until they are free.

    `stuck` names ports whose detach was asked for and did not come through.
    """
    total = dict.fromkeys(Hub, 0)
    free = dict.fromkeys(Hub, 0)
    broken = dict.fromkeys(Hub, 0)
    for port in ports:
        hub = hub_of(port)
        total[hub] += 1
        if port.state is PortState.FREE:
            free[hub] += 1
        elif port.state is PortState.ERROR or port.port in stuck:
            broken[hub] += 1
    return {hub: HubCount(total[hub], free[hub], broken[hub]) for hub in Hub}


def find(ports: Iterable[Port], number: PortId) -> Port:
    """The port with this number. Raises NotFound."""
    for port in ports:
        if port.port == number:
            return port
    raise NotFound(f"vhci has no port {number}")


def root_hub_port(ports: Sequence[Port], port: Port) -> int:
    """The port's place on its root hub, counted from 1 as bus ids do.

    The kernel numbers a controller's high-speed ports first, then its super-speed ports, and a
    device on port n of the root hub of bus N is called `N-n` (vhci_sysfs.c `port_to_rhport`).
    """
    hub = hub_of(port)
    before = sum(
        1
        for other in ports
        if other.controller == port.controller and hub_of(other) is hub and other.port < port.port
    )
    return before + 1
