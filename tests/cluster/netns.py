# SPDX-License-Identifier: Apache-2.0
"""Ways into a network namespace: run a program in it, reach a port of it from outside.

Owns no namespace: `tests.bed` (or the caller) makes and removes them.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyroute2 import netns

from tests.bed.host import run

_CHUNK = 65536


def command_inside(namespace: str, command: Sequence[str]) -> list[str]:
    """`command` as it must be called to run inside `namespace`; the process id stays its own."""
    return ["ip", "netns", "exec", namespace, *command]


def enable_forwarding(namespace: str) -> None:
    """Let the namespace pass packets on between its addresses and links."""
    switch = "echo 1 > /proc/sys/net/ipv4/ip_forward"
    run(command_inside(namespace, ["sh", "-c", switch]))


def add_route(namespace: str, subnet: str, gateway: str) -> None:
    """Send packets for `subnet` to `gateway`."""
    run(["ip", "-n", namespace, "route", "replace", subnet, "via", gateway])


def socket_inside(
    namespace: str,
    family: int = socket.AF_INET,
    kind: int = socket.SOCK_STREAM,
    protocol: int = 0,
) -> socket.socket:
    """A socket, of TCP by default, that lives in `namespace`, whichever thread uses it afterwards.

    Only a thread made for this purpose changes its namespace: the caller's stays as it is.

    Raises:
        OSError: there is no such namespace, or no right to enter it.
    """
    made: list[socket.socket] = []
    failed: list[OSError] = []

    def enter() -> None:
        try:
            netns.setns(namespace, flags=0)
            made.append(socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol))
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=enter, name="socket-inside")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]


@dataclass
class Carried:
    """What went through a door so far: bytes to its target, bytes back, and connections."""

    there: int = 0
    back: int = 0
    links: int = 0


class Door:
    """A port of this host's loopback that leads to an address inside a namespace.

    Lets clients outside (the Python client, kubectl) use the API server without any link between
    the namespace and the host's own network. Bytes pass unchanged, so TLS stays end to end.

    Args:
        namespace: where the target is.
        target: address and port there.
        listener: what to listen on in place of the host's loopback; the door closes it.
    """

    def __init__(
        self, namespace: str, target: tuple[str, int], listener: socket.socket | None = None
    ) -> None:
        self._namespace = namespace
        self._target = target
        self._listener = listener or socket.create_server(("127.0.0.1", 0))
        self._carried = Carried()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._accept, name="door", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port of the listener, by default on 127.0.0.1 of the host."""
        return int(self._listener.getsockname()[1])

    @property
    def carried(self) -> Carried:
        """A copy of the counts."""
        with self._lock:
            return Carried(self._carried.there, self._carried.back, self._carried.links)

    def close(self) -> None:
        """Stop listening and cut what still passes."""
        with self._lock:
            self._closed = True
            still_open = list(self._open)
        # shutdown() wakes a thread blocked in accept() or recv(); close() alone does not.
        for each in (self._listener, *still_open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                outside, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(
                target=self._serve, args=(outside,), name="door-link", daemon=True
            ).start()

    def _serve(self, outside: socket.socket) -> None:
        with outside, socket_inside(self._namespace) as inside:
            with self._lock:
                if self._closed:
                    return
                self._open |= {outside, inside}
                self._carried.links += 1
            try:
                # An address that refuses is the client's news: it sees its connection closed.
                with contextlib.suppress(OSError):
                    for end in (outside, inside):  # a door is no link that waits for more
                        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    inside.connect(self._target)
                    pumped = (inside, outside, self._back)
                    back = threading.Thread(target=_pump, args=pumped, daemon=True)
                    back.start()
                    _pump(outside, inside, self._there)
                    back.join()
            finally:
                with self._lock:
                    self._open -= {outside, inside}

    def _there(self, size: int) -> None:
        with self._lock:
            self._carried.there += size

    def _back(self, size: int) -> None:
        with self._lock:
            self._carried.back += size


def _pump(source: socket.socket, sink: socket.socket, count: Callable[[int], None]) -> None:
    """Copy until the source ends, then tell the sink so."""
    with contextlib.suppress(OSError):
        while chunk := source.recv(_CHUNK):
            count(len(chunk))
            sink.sendall(chunk)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
