# SPDX-License-Identifier: Apache-2.0
"""A stick of node a attached on node b: as a user sees it, phase by phase, ours against stock.

The stock way has no encryption, no authorisation, and returns before the device is there; it
is the yardstick for what the two kernels and the network need anyway.
"""

from __future__ import annotations

import pytest

from bench.conftest import Replay
from bench.kernel.conftest import Samples
from bench.kernel.links import OURS, STOCK, WAYS, Sample

ROLES = {STOCK: "yardstick", OURS: "ours"}
PHASES = (
    "connect",
    "tls",
    "authorise",
    "exporter.authorise",
    "exporter.bind",
    "exporter.hand_over",
    "attach",
    "enumerate",
    "settle",
)
OWN = ("connect", "tls", "authorise", "attach")


def enumeration(sample: Sample) -> float:
    """From the write to vhci to the kernel's announcement of the device.

    Stock ends right after its write. Of ours the write is known from the phases that end with
    the program: settle and enumerate come after it, and so does the end of the interpreter,
    which is left out by taking `enumerate` as it is said.
    """
    return sample.phases["enumerate"] if sample.phases else sample.device - sample.program


def own(sample: Sample) -> float:
    """Our part: everything before the kernel's enumeration, without the exporter's bind.

    The bind is the time of the host's driver letting go, which the stock way has to pay too.
    """
    return sum(sample.phases[phase] for phase in OWN) - sample.phases["exporter.bind"]


def start(sample: Sample) -> float:
    """What is left of the program's time: the interpreter's start, imports, and its end."""
    said = [seconds for phase, seconds in sample.phases.items() if "." not in phase]
    return sample.program - sum(said)


@pytest.mark.parametrize("who", WAYS)
def test_usable_disk(replay: Replay, attached: Samples, who: str) -> None:
    """From the first command to a disk that can be used; the stock way begins with its bind."""
    seconds = [sample.usable for sample in attached[who]]
    replay("attach as a user sees it", seconds, role=ROLES.get(who))


@pytest.mark.parametrize("who", WAYS)
def test_usable_disk_without_the_program_start(replay: Replay, attached: Samples, who: str) -> None:
    """The same without the interpreter, which an agent that runs already does not pay."""
    seconds = [s.usable - (start(s) if s.phases else 0.0) for s in attached[who]]
    replay("attach by a program that runs already", seconds, role=ROLES.get(who))


@pytest.mark.parametrize("who", WAYS)
def test_enumeration(replay: Replay, attached: Samples, who: str) -> None:
    seconds = [enumeration(sample) for sample in attached[who]]
    replay("enumeration, from the write to the device", seconds, role=ROLES.get(who))


@pytest.mark.parametrize("phase", PHASES)
def test_phase(replay: Replay, attached: Samples, phase: str) -> None:
    replay("phases of our attach", [sample.phases[phase] for sample in attached["ours"]])


def test_wait_after_the_disk(replay: Replay, attached: Samples) -> None:
    """From the kernel's announcement of the disk to the end of the program."""
    seconds = [max(sample.program - sample.disk, 0.0) for sample in attached["ours"]]
    waited = {text for sample in attached["ours"] for text in sample.unsettled}
    replay("our program after the disk is there", seconds, unsettled=sorted(waited))


def test_bind_of_the_stock_tool(replay: Replay, attached: Samples) -> None:
    replay("phases of a stock attach", [sample.before for sample in attached["stock"]])


def test_attach_of_the_stock_tool(replay: Replay, attached: Samples) -> None:
    replay("phases of a stock attach", [sample.program for sample in attached["stock"]])


def test_our_part(replay: Replay, attached: Samples) -> None:
    """Goal on bare metal: 10 ms. Under emulation everything we run is many times slower."""
    seconds = [own(sample) for sample in attached["ours"]]
    replay("our part above the kernel's own time", seconds, goal_native_ms=10)


def test_start_and_end_of_the_program(replay: Replay, attached: Samples) -> None:
    replay("start and end of our program", [start(sample) for sample in attached["ours"]])
