# SPDX-License-Identifier: Apache-2.0
"""Devices that are judged by when, not by how much: a keyboard's keys and a sound card's packets.

Over an encrypted link, beside the same device used in its own node. The keyboard is a gadget; the
sound card is QEMU's, at full speed, since gadgets have no isochronous endpoints (kernel-facts.md).
Owns devices, links and samples. Must not judge them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bench.throughput.network import DELAYS_MS, gadget, netem
from tests.bed.bed import Bed
from tests.bed.node import Node
from tests.bed.vm import SUPER_BUS
from tests.kernel.product import attach, serving

PRESSES, BURST = 60, 40
"""Reports one by one, and reports as fast as they are taken."""
PAUSE_S = 0.02
"""Beyond a round trip: the next transfer waits in the keyboard before the next report."""
KEYS, CARD = "KEYS", "card"
STREAM = {"interface": 1, "endpoint": 1, "packet": 192, "packets": 8}
"""hw/usb/dev-audio.c: stereo, 48 kHz, 16 bits, a packet each millisecond; 8 of them a transfer."""
PACKETS_A_SECOND = 1000
QUEUES = (2, 4, 16)
"""Transfers under way: 16, 32 and 128 ms of sound."""
STREAM_S = 2.0


@dataclass
class Keys:
    """Seconds, each from a report to its answer by datagram, and of a datagram there and back;
    of a burst seconds a report."""

    reports: list[float] = field(default_factory=list)
    datagrams: list[float] = field(default_factory=list)
    burst: float = 0.0


@dataclass(frozen=True)
class Stream:
    """One stream: what guest_urbs.iso says."""

    packets: int
    lost: int
    short: int
    gaps: list[float]

    @property
    def rate(self) -> float:
        """Packets a second that were taken, of those that the device plays in one."""
        return self.packets / sum(self.gaps) / PACKETS_A_SECOND


def typed(bed: Bed) -> dict[float | None, Keys]:
    """The keyboard by delay; None is the keyboard in its own node."""
    a, b = bed["a"], bed["b"]
    found: dict[float | None, Keys] = {}
    with gadget(bed, "keyboard", KEYS, speed="high"):
        event = a.call("usb.wait", KEYS, child="inputs")["inputs"][0]
        with _answering(a, a, event):
            found[None] = _type(a, a.ip, PAUSE_S)
        with serving(a):
            attach(b, a.ip, KEYS)
            event = b.call("usb.wait", KEYS, imported=True, child="inputs")["inputs"][0]
            with _answering(b, a, event):
                for delay in DELAYS_MS:
                    with netem(bed, delay):
                        found[delay] = _type(a, b.ip, PAUSE_S + delay / 1e3)
            b.call("usb.detach_all", timeout=120)
            a.call("usb.wait", KEYS, child="inputs")
    return found


@contextmanager
def _answering(node: Node, asker: Node, event: str) -> Iterator[None]:
    node.call("guest_keys.answer", event)
    try:
        yield
    finally:
        asker.call("guest_keys.end", node.ip)


def _type(a: Node, address: str, pause: float) -> Keys:
    return Keys(
        a.call("guest_keys.presses", KEYS, address, PRESSES, pause, timeout=120),
        a.call("guest_keys.echoes", address, PRESSES, pause, timeout=120),
        a.call("guest_keys.burst", KEYS, address, BURST, timeout=120) / BURST,
    )


def played(bed: Bed) -> dict[tuple[float | None, int], Stream]:
    """The sound card by delay and queue; None is the card in its own node."""
    a, b = bed["a"], bed["b"]
    found: dict[tuple[float | None, int], Stream] = {}
    a.vm.qmp.plug("usb-audio", "sound", SUPER_BUS, audiodev="silence", serial=CARD)
    try:
        card = a.call("usb.wait", CARD, child="cards")
        for queue in QUEUES:
            found[None, queue] = _play(a, card, queue)
        with serving(a, env={"USBDRA_FORWARD_LOW_SPEED": "true"}):
            attach(b, a.ip, CARD)
            card = b.call("usb.wait", CARD, imported=True, child="cards")
            for delay in DELAYS_MS:
                with netem(bed, delay):
                    for queue in QUEUES:
                        found[delay, queue] = _play(b, card, queue)
            b.call("usb.detach_all", timeout=120)
            a.call("usb.wait", CARD)
    finally:
        a.vm.qmp.unplug("sound")
        a.call("usb.wait", CARD, gone=True)
    return found


def _play(node: Node, card: dict[str, Any], queue: int) -> Stream:
    words = (card["busnum"], card["devnum"])
    more = {"depth": queue, "seconds": STREAM_S}
    return Stream(**node.call("guest_urbs.iso", *words, **STREAM, **more, timeout=120))
