# SPDX-License-Identifier: Apache-2.0
"""A cable to a process in a network namespace of its own, which can be pulled.

Owns both ends, a veth pair. Pulled, packets go to a hardware address that nobody has: neither end
is told, and routes and addresses stay, as when a cable is out behind a switch.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

NEAR, FAR = "cable", "eth0"
NOBODY = "02:00:00:00:00:99"


class Cable:
    """From the caller's namespace to that of one process."""

    near, address = "10.199.0.1", "10.199.0.2"

    def __init__(self) -> None:
        self._inside: list[str] = []
        self._hardware: dict[str, str] = {}

    def behind(self, command: Sequence[str]) -> list[str]:
        """`command` in a namespace of its own; it waits for a line on its standard input until
        the cable is there."""
        return ["unshare", "--net", "sh", "-c", 'read line; exec "$@"', "sh", *command]

    def lay(self, pid: int) -> None:
        """Connect the process that `behind` became."""
        self._inside = ["nsenter", f"--net=/proc/{pid}/ns/net"]
        _ip("link", "add", NEAR, "type", "veth", "peer", "name", FAR, "netns", str(pid))
        _ip("address", "add", f"{self.near}/24", "dev", NEAR)
        _ip("link", "set", NEAR, "up")
        self._far("link", "set", "lo", "up")
        self._far("address", "add", f"{self.address}/24", "dev", FAR)
        self._far("link", "set", FAR, "up")
        self._far("route", "add", "default", "via", self.near)
        for device, show in ((NEAR, _ip), (FAR, self._far)):
            words = show("-brief", "link", "show", "dev", device).split()
            self._hardware[device] = words[2]

    def pull(self) -> None:
        """From now on nothing arrives, in either direction."""
        self._send_to(NOBODY, NOBODY)

    def plug(self) -> None:
        """As before."""
        self._send_to(self._hardware[FAR], self._hardware[NEAR])

    def _send_to(self, far: str, near: str) -> None:
        words = ("neighbor", "replace", "nud", "permanent")
        self._far(*words, self.near, "lladdr", near, "dev", FAR)
        _ip(*words, self.address, "lladdr", far, "dev", NEAR)

    def _far(self, *words: str) -> str:
        return _run([*self._inside, "ip", *words])


def _ip(*words: str) -> str:
    return _run(["ip", *words])


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout
