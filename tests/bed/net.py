# SPDX-License-Identifier: Apache-2.0
"""The nodes' network: a namespace of its own with a bridge, one tap per node, and captures.

Owns the namespace from start to end. Nothing in it reaches the host's network or the world.
"""

import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bed.errors import HostError
from tests.bed.host import need_root, program, run
from tests.bed.process import spawn, stop

BRIDGE = "br0"
HOST_IP4 = "192.168.77.1"
HOST_IP6 = "fd77::1"


def address4(index: int) -> str:
    """IPv4 address of the node with this index (0, 1, ...)."""
    return f"192.168.77.{10 + index}"


def address6(index: int) -> str:
    """IPv6 address of the node with this index."""
    return f"fd77::{10 + index}"


class Network:
    """A network namespace with a bridge; the host's side of it is 192.168.77.1."""

    def __init__(self, name: str, nodes: Iterable[str] = ()) -> None:
        """`nodes` have their taps already: the network is one that another process made."""
        self.name = name
        self._taps = {f"tap-{node}" for node in nodes}

    def up(self) -> None:
        """Make namespace and bridge. Raises HostError."""
        need_root()
        run(["ip", "netns", "add", self.name])
        self._ip("link", "set", "lo", "up")
        # forward_delay 0: a node's first packet must not wait for spanning tree
        self._ip("link", "add", BRIDGE, "type", "bridge", "forward_delay", "0")
        self._ip("addr", "add", f"{HOST_IP4}/24", "dev", BRIDGE)
        self._ip("addr", "add", f"{HOST_IP6}/64", "dev", BRIDGE, "nodad")
        self._ip("link", "set", BRIDGE, "up")

    def down(self) -> None:
        """Remove the namespace with all in it; no error when it is gone already."""
        if Path("/run/netns", self.name).exists():
            run(["ip", "netns", "del", self.name])

    def inside(self, argv: list[str]) -> list[str]:
        """The command that runs `argv` in the namespace, as the same process."""
        return [program("ip"), "netns", "exec", self.name, *argv]

    def add_tap(self, node: str) -> str:
        """Make the tap of a node, on the bridge, unless it is there; returns its name."""
        tap = f"tap-{node}"
        if tap not in self._taps:
            self._ip("tuntap", "add", "dev", tap, "mode", "tap")
            self._ip("link", "set", tap, "master", BRIDGE, "up")
            self._taps.add(tap)
        return tap

    def host_address(self, act: str, address: str) -> None:
        """`replace` (add unless it is there) or `del` one more IPv4 address of the host's side."""
        self._ip("addr", act, f"{address}/24", "dev", BRIDGE)

    def cut(self, node: str) -> None:
        """Lose every packet from and to a node, silently: the carrier stays."""
        self._ip("link", "set", f"tap-{node}", "nomaster")

    def restore(self, node: str) -> None:
        """End a cut."""
        self._ip("link", "set", f"tap-{node}", "master", BRIDGE)

    @contextmanager
    def capture(self, node: str, file: Path, only: str = "tcp") -> Iterator[Path]:
        """Record whole packets of a node's tap into a pcap file while the block runs.

        `only` is a pcap filter. Raises HostError when packets were dropped.
        """
        argv = [program("tcpdump"), "-i", f"tap-{node}", "-s", "0", "-B", "65536", "-U"]
        argv += ["--immediate-mode", "-Z", "root", "-w", str(file), *only.split()]
        log = file.with_suffix(".log")
        with log.open("wb") as err:
            dump = spawn(self.inside(argv), stdout=err)
        try:
            _wait_for_text(dump, log, "listening on")
            yield file
            _wait_until_still(file)
        finally:
            stop(dump, signal.SIGINT)
        if " 0 packets dropped by kernel" not in f" {log.read_text()}".replace("\n", " "):
            raise HostError(f"the capture is not whole: {log.read_text()}")

    def _ip(self, *words: str) -> None:
        run([program("ip"), "-n", self.name, *words])


def _wait_until_still(file: Path, seconds: float = 0.5) -> None:
    """Wait until a file has not grown for a while: what a busy host has yet to write is there."""
    size, since = file.stat().st_size, time.monotonic()
    while time.monotonic() - since < seconds:
        time.sleep(0.05)
        if (now := file.stat().st_size) != size:
            size, since = now, time.monotonic()


def _wait_for_text(process: subprocess.Popen[bytes], log: Path, text: str) -> None:
    limit = time.monotonic() + 10
    while text not in log.read_text():
        if process.poll() is not None or time.monotonic() > limit:
            raise HostError(f"tcpdump did not start: {log.read_text()}")
        time.sleep(0.02)
