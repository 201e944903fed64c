# SPDX-License-Identifier: Apache-2.0
"""Runs in a node: says what the kernel and the agent know, one line for each change.

    guest_observer.py

"kernel PORTS USED": vhci ports that are not free, devices that usbip-host has a session of.
"agent MESSAGE": a line of the agent's log, by its message; also of agents that start meanwhile.
"""

from __future__ import annotations

import glob
import json
import os
import time
from collections.abc import Iterator

PAUSE_S = 0.1
LOADED = "/sys/module/vhci_hcd/initstate"
PORTS = "/sys/devices/platform/vhci_hcd.0/status*"
DEVICES = "/sys/bus/usb/drivers/usbip-host/*-*/usbip_status"
LOGS = "/var/log/pods/usbdra_usbdra-agent-*/agent/*.log"


def content(path: str, at: int = 0) -> str:
    """A file's text from a byte on; empty when it went away."""
    try:
        with open(path, "rb") as f:
            f.seek(at)
            return f.read().decode(errors="replace")
    except OSError:
        return ""


def size(path: str) -> int:
    """A file's bytes; 0 when it went away."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def kernel() -> tuple[int, int]:
    """(ports that are not free, devices with a session)."""
    # 6.1 crashes when a status is read before its controller is made (docs/kernel-facts.md)
    files = glob.glob(PORTS) if content(LOADED).strip() == "live" else []
    rows = [line for path in files for line in content(path).splitlines()[1:]]
    ports = sum(1 for row in rows if row.split()[2:3] not in ([], ["004"]))
    return ports, sum(content(path).strip() == "2" for path in glob.glob(DEVICES))


class Logs:
    """New lines of all agents' logs. What was read is not read again: they grow all day."""

    def __init__(self) -> None:
        self.read = {path: size(path) for path in glob.glob(LOGS)}

    def news(self) -> Iterator[str]:
        """Messages that came since the last call."""
        for path in glob.glob(LOGS):
            at = self.read.setdefault(path, 0)
            if size(path) <= at:
                continue
            whole, end, _ = content(path, at).rpartition("\n")
            self.read[path] = at + len((whole + end).encode())
            for line in whole.splitlines():
                try:
                    yield json.loads(line.split(" ", 3)[3])["message"]
                except (ValueError, IndexError, KeyError):
                    continue


def main() -> None:
    """Until the test ends it."""
    logs, known = Logs(), (-1, -1)
    print("observing", flush=True)
    while True:
        now = kernel()
        if now != known:
            known = now
            print("kernel", *now, flush=True)
        for message in logs.news():
            print("agent", message.replace("\n", " "), flush=True)
        time.sleep(PAUSE_S)


main()
