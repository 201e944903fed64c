# SPDX-License-Identifier: Apache-2.0
"""How each fault of the matrix is made on a bed, and how it is ended.

Owns the acts. Each is a context manager: inside the fault is on, after it the cause is gone. What
follows from that, and the waits for it, are run.py's.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from tests.bed.node import Node
from tests.cluster import faults
from tests.cluster.bed import ClusterBed
from tests.cluster.gadgets import Gadget
from tests.cluster.leftovers import AGENT
from tests.cluster.matrix.table import Fault

EXPORT_PORT = 3241
NETEM_S = 10.0
"""How long packets are lost or late: some ten reads of the pod."""
AWAY_S = 20.0
"""How long kubelet, API server, disk space and the right time are away."""
_FULL = "/var/lib/fault-matrix.full"
# a TCP header's flags in a packet without IP options: RST is bit 2 of byte 33
_NO_RESETS = """
tc qdisc add dev {interface} clsact
tc filter add dev {interface} egress protocol ip u32 match ip protocol 6 0xff \
  match u8 0x04 0x04 at 33 action drop
"""
_LINKS = f"'( sport = :{EXPORT_PORT} or dport = :{EXPORT_PORT} )'"


def _interface(machine: Node) -> str:
    """What the node's address is at; each kernel names it its own way."""
    return machine.sh(f"ip -4 -o address show to {machine.ip}").split()[1]


@contextlib.contextmanager
def cut(bed: ClusterBed, node: str, seconds: float) -> Iterator[None]:
    """Every packet from and to the node is lost, silently."""
    bed.bed.cut(node)
    try:
        yield
        time.sleep(seconds)
    finally:
        bed.bed.restore(node)


@contextlib.contextmanager
def netem(bed: ClusterBed, node: str, words: str) -> Iterator[None]:
    """What the node sends is treated so (tc-netem(8))."""
    machine = bed.machine(node)
    interface = _interface(machine)
    machine.sh(f"tc qdisc add dev {interface} root netem {words}")
    try:
        yield
        time.sleep(NETEM_S)
    finally:
        machine.sh(f"tc qdisc del dev {interface} root")


@contextlib.contextmanager
def reset(bed: ClusterBed, node: str) -> Iterator[None]:
    """The node's end of each link is aborted: the other end is told so by a packet."""
    bed.machine(node).sh(f"ss -K -t {_LINKS}")
    yield


@contextlib.contextmanager
def half_open(bed: ClusterBed, node: str) -> Iterator[None]:
    """The node's end of each link is aborted, and the packets that would tell are lost."""
    machine = bed.machine(node)
    interface = _interface(machine)
    machine.sh(_NO_RESETS.format(interface=interface))
    try:
        machine.sh(f"ss -K -t {_LINKS}")
        yield
        time.sleep(1)
    finally:
        machine.sh(f"tc qdisc del dev {interface} clsact")


@contextlib.contextmanager
def killed(bed: ClusterBed, node: str, program: str) -> Iterator[None]:
    """SIGKILL; the kubelet starts it again."""
    bed.machine(node).sh(f"pkill -KILL -f '[{program[0]}]{program[1:]}'")
    yield


@contextlib.contextmanager
def no_kubelet(bed: ClusterBed, node: str) -> Iterator[None]:
    """SIGKILL, and nobody starts it for a while."""
    bed.machine(node).sh("kill -KILL $(cat /run/kubelet.pid)")
    try:
        yield
        time.sleep(AWAY_S)
    finally:
        bed.nodes[node].start_kubelet()


@contextlib.contextmanager
def no_api_server(bed: ClusterBed) -> Iterator[None]:
    """Nobody reaches the API server for a while."""
    with faults.no_api_server(bed):
        yield
        time.sleep(AWAY_S)


@contextlib.contextmanager
def powered_off(bed: ClusterBed, node: str, seconds: float) -> Iterator[None]:
    """The node's power is pulled; afterwards it boots. Its files are safe before that."""
    machine = bed.machine(node)
    machine.run("sync")
    machine.power_off()
    try:
        yield
        time.sleep(seconds)
    finally:
        machine.power_on()
        bed.nodes[node].start()


@contextlib.contextmanager
def pulled(stick: Gadget) -> Iterator[None]:
    """The device is out for three seconds."""
    stick.node.call("gadget.unplug", stick.serial)
    try:
        yield
        time.sleep(3)
    finally:
        stick.node.call("gadget.replug", stick.serial)


@contextlib.contextmanager
def unloaded(bed: ClusterBed, node: str) -> Iterator[None]:
    """vhci-hcd is away for three seconds."""
    machine = bed.machine(node)
    machine.sh("modprobe -r vhci_hcd")
    try:
        yield
        time.sleep(3)
    finally:
        machine.sh("modprobe vhci_hcd")


@contextlib.contextmanager
def later(bed: ClusterBed, node: str) -> Iterator[None]:
    """The node's clock is two hours ahead for a while."""
    machine = bed.machine(node)
    machine.sh("date -s '+2 hours'")
    try:
        yield
        time.sleep(AWAY_S)
    finally:
        machine.sh("date -s '-2 hours'")


@contextlib.contextmanager
def full(bed: ClusterBed, node: str) -> Iterator[None]:
    """The node's disk, which has the records, has no byte left for a while."""
    machine = bed.machine(node)
    machine.sh(
        f"fallocate -l $(($(stat -f -c '%a * %S' {_FULL.rpartition('/')[0]}) - 65536)) {_FULL};"
        f" dd if=/dev/zero of={_FULL}.rest bs=4k 2>/dev/null; test $(stat -f -c %a /var/lib) = 0",
        timeout=120,
    )
    try:
        yield
        time.sleep(AWAY_S)
    finally:
        machine.sh(f"rm -f {_FULL} {_FULL}.rest")


Act = Callable[[ClusterBed, str, Gadget], AbstractContextManager[None]]
ACTS: dict[Fault, Act] = {
    Fault.CUT_5: lambda bed, node, stick: cut(bed, node, 5),
    Fault.CUT_45: lambda bed, node, stick: cut(bed, node, 45),
    Fault.CUT_600: lambda bed, node, stick: cut(bed, node, 600),
    Fault.LOSS: lambda bed, node, stick: netem(bed, node, "loss 5%"),
    Fault.DELAY: lambda bed, node, stick: netem(bed, node, "delay 200ms"),
    Fault.RESET: lambda bed, node, stick: reset(bed, node),
    Fault.HALF_OPEN: lambda bed, node, stick: half_open(bed, node),
    Fault.AGENT: lambda bed, node, stick: killed(bed, node, AGENT),
    Fault.EXPORTER: lambda bed, node, stick: killed(bed, node, faults.EXPORTER),
    Fault.KUBELET: lambda bed, node, stick: no_kubelet(bed, node),
    Fault.POWER: lambda bed, node, stick: powered_off(bed, node, 30),
    Fault.REBOOT: lambda bed, node, stick: powered_off(bed, node, 0),
    Fault.PULLED: lambda bed, node, stick: pulled(stick),
    Fault.MODULE: lambda bed, node, stick: unloaded(bed, node),
    Fault.API: lambda bed, node, stick: no_api_server(bed),
    Fault.CLOCK: lambda bed, node, stick: later(bed, node),
    Fault.DISK: lambda bed, node, stick: full(bed, node),
}
"""By fault: its act on a node of a bed, and on the stick that is used."""
