# SPDX-License-Identifier: Apache-2.0
"""Links of the kernel benchmarks: one stick, from node a to node b, ours and Debian's own way.

Owns how each is made, timed inside the node, and given back. Must not judge what it measured.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.kernel import peers
from tests.bed.bed import Bed
from tests.bed.node import Node
from tests.kernel.product import certificates

PROBE = "/run/bench/guest_probe.py"
SERIAL = "BENCH0001"
MIB = 32
PLAIN_PORT = 3242
FREE = 4


@dataclass(frozen=True)
class Sample:
    """One attach as a user sees it; all in seconds.

    `before` is what had to be done on the exporter first, `program` from start to end of the
    attaching program, `device` and `disk` from its start to the kernel's own announcement.
    `phases` is what `usbdra attach -o json` says, `unsettled` what it waited for in vain.
    """

    before: float
    program: float
    device: float
    disk: float
    phases: dict[str, float] = field(default_factory=dict)
    unsettled: tuple[str, ...] = ()

    @property
    def usable(self) -> float:
        """Until the disk can be used: it is there, and the user has the prompt back."""
        return self.before + max(self.program, self.disk)


def probe(node: Node, command: str, kinds: str = "-") -> dict[str, Any]:
    """Run a command in the node under the probe; it must succeed."""
    argv = ["python3", PROBE, kinds, *command.split()]
    found: dict[str, Any] = json.loads(node.run(argv, timeout=120).out)
    assert found["rc"] == 0, f"{command}: {found}"
    return found


def prepare(bed: Bed) -> None:
    """The probe on both nodes, and certificates."""
    for node in (bed["a"], bed["b"]):
        node.push(Path(__file__).with_name("guest_probe.py"), PROBE)
    certificates(bed)


@contextmanager
def stick(bed: Bed) -> Iterator[None]:
    """The stick in a, full of random bytes."""
    a = bed["a"]
    a.call("gadget.storage", SERIAL, MIB)
    a.call("raw.fill", a.call("usb.wait", SERIAL, child="disks")["disks"][0], MIB, timeout=300)
    try:
        yield
    finally:
        a.call("gadget.remove", SERIAL)


@contextmanager
def served(bed: Bed, options: str = "") -> Iterator[None]:
    """`usbdra serve` on a."""
    server = bed["a"].start(f"exec usbdra serve {options}")
    server.wait_for("serving", timeout=60)
    try:
        yield
    finally:
        server.stop()


@contextmanager
def stock_served(bed: Bed) -> Iterator[None]:
    """`usbipd` on a."""
    daemon = bed["a"].start(["usbipd"])
    daemon.wait_for("listening on 0.0.0.0")
    try:
        yield
    finally:
        daemon.stop()


@contextmanager
def ours(bed: Bed, options: str = "") -> Iterator[Sample]:
    """The stick attached by `usbdra attach`; detached, and back with a's driver, afterwards."""
    a, b = bed["a"], bed["b"]
    seen = probe(b, f"usbdra attach {a.ip} {_key(a, options)} {options} -o json", "device,disk")
    said = json.loads(seen["out"])
    moments = seen["end"], seen["device"], seen["disk"]
    yield Sample(0.0, *moments, said["timings"], tuple(said["unsettled"]))
    b.run(f"usbdra detach {said['port']}", timeout=120)
    a.call("usb.wait", SERIAL, child="disks")


@contextmanager
def stock(bed: Bed) -> Iterator[Sample]:
    """The stick attached by Debian's `usbip`, bound by hand first."""
    with _in_two_steps(bed, "usbip attach -r {ip} -b {busid}") as sample:
        yield sample


@contextmanager
def go(bed: Bed) -> Iterator[Sample]:
    """The same by the Go tool (peers.py), from the same usbipd."""
    with _in_two_steps(bed, f"{peers.GO} attach {{ip}} {{busid}}") as sample:
        yield sample


@contextmanager
def _in_two_steps(bed: Bed, command: str) -> Iterator[Sample]:
    a, b = bed["a"], bed["b"]
    busid = a.call("usb.find", SERIAL)["busid"]
    before = probe(a, f"usbip bind -b {busid}")["end"]
    seen = probe(b, command.format(ip=a.ip, busid=busid), "device,disk")
    yield Sample(before, seen["end"], seen["device"], seen["disk"])
    (row,) = b.call("usb.used")
    b.run(f"usbip detach -p {row['port']}")
    b.call("usb.wait_row", row["port"], FREE)
    a.call("usb.wait_status", SERIAL, "1")
    a.run(f"usbip unbind -b {busid}")
    a.call("usb.wait", SERIAL, child="disks")


def _key(a: Node, options: str) -> str:
    """A plain link knows devices only by bus id, as the stock protocol does."""
    return str(a.call("usb.find", SERIAL)["busid"]) if "--plain" in options else SERIAL


OURS, STOCK, GO = "ours", "stock", "go"
WAYS: dict[str, Callable[[Bed], AbstractContextManager[Sample]]] = {
    OURS: ours,
    STOCK: stock,
    **({GO: go} if peers.go_tool() else {}),
}
"""Ways to attach a stick that are compared."""
