# SPDX-License-Identifier: Apache-2.0
"""The cells of the fault matrix and what each must come to. Pure data, imported by the page's
generator and its test as by the runner; must not import anything of a bed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """What happens."""

    CUT_5 = "link cut for 5 s"
    CUT_45 = "link cut for 45 s"
    CUT_600 = "link cut for 10 min"
    LOSS = "5 % loss"
    DELAY = "200 ms delay"
    RESET = "reset"
    HALF_OPEN = "half-open"
    AGENT = "agent killed"
    EXPORTER = "exporter killed"
    KUBELET = "kubelet killed"
    POWER = "node powered off"
    REBOOT = "node rebooted"
    PULLED = "device pulled and replugged"
    MODULE = "module unloaded"
    API = "API server gone"
    CLOCK = "clock jumped by two hours"
    DISK = "disk full"


class Phase(StrEnum):
    """What a claim is doing when it happens."""

    IDLE = "idle"
    PREPARING = "preparing"
    BUSY = "attached and busy"
    UNPREPARING = "unpreparing"


class Side(StrEnum):
    """Where it happens: the node that has the device, the node that uses it, or the cluster."""

    EXPORTER = "exporter"
    IMPORTER = "importer"
    CLUSTER = "cluster"


class Expect(StrEnum):
    """What must come of it. In every case nothing is left over once the claim is gone."""

    NOTHING = "nothing fails"
    """The pod's reads may wait; none fails, and its container is not restarted."""
    AGAIN = "attached again"
    """Both ends know of the loss, the device comes back into the same running container."""
    RESTART = "attached again, container started anew"
    """The node was away, and with it its containers."""
    LATER = "prepared in the end"
    """The pod waits for its device and then runs."""
    BACK = "given back in the end"
    """The pod goes, and the device is with its own driver."""
    FREE = "the next pod gets it"
    """Nobody had the device; who comes afterwards has it."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the matrix."""

    fault: Fault
    phase: Phase
    side: Side

    def __str__(self) -> str:
        return f"{self.fault}, {self.phase}, {self.side}"


_LINK = frozenset(
    {Fault.CUT_45, Fault.CUT_600, Fault.RESET, Fault.HALF_OPEN, Fault.PULLED, Fault.MODULE}
)
"""Faults that end a link which is there."""
_AWAY = frozenset({Fault.POWER, Fault.REBOOT})
NIGHTLY = frozenset({Fault.CUT_600})
"""Faults that take too long by day: a cut of 45 s is three times what a dead peer may stay unknown,
so both ends have ended the link and the pauses between attempts have grown, which is all that ten
minutes of it change for a link. What they add is the cluster's own doing: the node is NotReady,
and its pods are to be evicted after 300 s."""

_NO_LINK_PROCESS = "an importer's own exporter serves the devices of its own node: no part of this"
_NEVER_UNLOAD = "the kernel crashes (docs/kernel-facts.md): never to be done on a running node"
_NO_DEVICE = "the device is in the other node; a port of vhci has no plug to pull"
_CLUSTER_ONLY = "the API server is neither node's"
_NODE_ONLY = "it happens to a node"


def senseless(cell: Cell) -> str:
    """Why there is no such cell; empty when there is."""
    fault, side = cell.fault, cell.side
    if (fault is Fault.API) != (side is Side.CLUSTER):
        return _CLUSTER_ONLY if fault is Fault.API else _NODE_ONLY
    if fault is Fault.EXPORTER and side is Side.IMPORTER:
        return _NO_LINK_PROCESS
    if fault is Fault.MODULE and side is Side.EXPORTER:
        return _NEVER_UNLOAD
    if fault is Fault.PULLED and side is Side.IMPORTER:
        return _NO_DEVICE
    if fault in (Fault.RESET, Fault.HALF_OPEN) and cell.phase is Phase.IDLE:
        return "without a claim there is no connection"
    return ""


def expected(cell: Cell) -> Expect:
    """What a cell must come to."""
    match cell.phase:
        case Phase.IDLE:
            return Expect.FREE
        case Phase.PREPARING:
            return Expect.LATER
        case Phase.UNPREPARING:
            return Expect.BACK
    if cell.fault in _AWAY and cell.side is Side.IMPORTER:
        return Expect.RESTART
    return Expect.AGAIN if cell.fault in _LINK | _AWAY else Expect.NOTHING


def _every() -> list[Cell]:
    return [Cell(f, p, s) for f in Fault for p in Phase for s in Side]


CELLS: tuple[Cell, ...] = tuple(cell for cell in _every() if not senseless(cell))
NONSENSE: Mapping[str, str] = {
    str(cell): senseless(cell)
    for cell in _every()
    if senseless(cell) not in ("", _CLUSTER_ONLY, _NODE_ONLY)
}
"""Cells that are left out, and why; that a fault of a node is none of the cluster needs no word."""
QUICK: tuple[Cell, ...] = (
    Cell(Fault.RESET, Phase.BUSY, Side.IMPORTER),
    Cell(Fault.EXPORTER, Phase.BUSY, Side.EXPORTER),
)
"""Those that `make test` has time for."""
