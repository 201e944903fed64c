# SPDX-License-Identifier: Apache-2.0
"""Settings of TCP against each other: links that differ in one of them, all up at once.

Each link has a device of its own, of one kind; one works, the others rest, and transfers of half a
second go round them, each round beginning with another. All are encrypted, as links are by default:
kernel TLS with keys by hand, since usbdra's own program sets what it sets. Both ends are set alike,
after the connection is made: TCP's window scale is that of the kernel's own limits.
Owns the links and the samples. Must not judge them.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from bench.throughput.network import at, gadget, netem
from tests.bed.bed import Bed

_SEND_BUFFER, _RECEIVE_BUFFER = 32, 33  # SO_SNDBUFFORCE, SO_RCVBUFFORCE: above the sysctl's limit
_BUSY_POLL = 46  # SO_BUSY_POLL
_CONGESTION = 13  # TCP_CONGESTION
_TCP, _ANY = socket.IPPROTO_TCP, socket.SOL_SOCKET

Options = list[tuple[int, int, int | str]]


def _buffers(size: int) -> Options:
    return [(_ANY, _SEND_BUFFER, size), (_ANY, _RECEIVE_BUFFER, size)]


OURS = "as ours"
SETTINGS: Mapping[str, Options] = {
    OURS: [],
    "no NODELAY": [(_TCP, socket.TCP_NODELAY, 0)],
    "buffers of 256 KiB": _buffers(256 << 10),
    "buffers of 4 MiB": _buffers(4 << 20),
    "reno": [(_TCP, _CONGESTION, "reno")],
    "bbr": [(_TCP, _CONGESTION, "bbr")],
    "busy poll 50 us": [(_ANY, _BUSY_POLL, 50)],
}
"""What each link's ends are given beside TCP_NODELAY, which all begin with."""
NETWORKS: Mapping[str, tuple[float, float | None]] = {
    "1 ms": (1.0, None),
    "20 ms": (20.0, None),
    "20 ms, 1 % lost": (20.0, 1.0),
}
"""Milliseconds that a round trip takes longer, and packets lost; see network.netem."""
JOBS: Mapping[str, tuple[str, int, int]] = {
    "read 512 B x 1": ("in", 512, 1),
    "read 4 KiB x 4": ("in", 4 << 10, 4),
    "read 64 KiB x 4": ("in", 64 << 10, 4),
    "write 64 KiB x 1": ("out", 64 << 10, 1),
}
"""Direction, bytes of a transfer, and how many are under way at once."""
SECONDS = 0.4
HIGH_SPEED = 3
FIRST_PORT = 4100
MODULES = ("tcp_bbr",)

Place = tuple[str, str, str]
"""(network, job, setting)."""
Ends = tuple[int, int, dict[str, int]]


@contextmanager
def linked(bed: Bed) -> Iterator[dict[str, Ends]]:
    """For each setting its device on b."""
    a, b = bed["a"], bed["b"]
    for node in (a, b):
        node.run(["modprobe", *MODULES])
    with ExitStack() as stack:
        stack.callback(a.call, "usb.release_all")
        stack.callback(b.call, "usb.detach_all", timeout=120)
        ends = {}
        for number, (name, options) in enumerate(SETTINGS.items()):
            serial = f"SETTING-{number}"
            device = stack.enter_context(gadget(bed, "source", serial))
            a.call("usb.bind", device["busid"])
            keys = [secrets.token_hex(28), secrets.token_hex(28)]
            port = FIRST_PORT + number
            a.call("raw.export", device["busid"], port, keys, options=options)
            devid = device["busnum"] << 16 | device["devnum"]
            b.call("raw.attach", a.ip, devid, number, HIGH_SPEED, port, keys, options)
            ends[name] = at(b, serial, imported=True)
        yield ends


def measure(bed: Bed, ends: Mapping[str, Ends], rounds: int) -> dict[Place, list[float]]:
    """Seconds a transfer, so many times each."""
    names = list(ends)
    found: dict[Place, list[float]] = {
        (network, job, name): [] for network in NETWORKS for job in JOBS for name in names
    }
    for number in range(rounds):
        turn = number % len(names)
        for network, (delay, loss) in NETWORKS.items():
            with netem(bed, delay, loss):
                for job, (way, size, depth) in JOBS.items():
                    for name in names[turn:] + names[:turn]:
                        bus, device, addresses = ends[name]
                        words = (bus, device, addresses[way], size, depth, SECONDS)
                        seconds, _ = bed["b"].call("guest_urbs.bulk", *words, timeout=300)
                        found[network, job, name].append(seconds)
    return found
