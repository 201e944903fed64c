# SPDX-License-Identifier: Apache-2.0
"""Attach and detach of one pair, again and again: nothing grows (`make soak` at length)."""

from __future__ import annotations

import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import pytest

from tests.bed.node import Node, Process
from tests.bed.progress import say
from tests.kernel.conftest import Pair
from tests.kernel.guest_cycles import GO, TOLD
from tests.kernel.product import serving
from tests.kernel.test_link import home

CYCLES = int(os.environ.get("SOAK_CYCLES", "10"))
WARM = 3
CYCLE_S = 60.0
MEMORY_KIB = 4096
"""What a process may have grown by: a leak of 4 KiB a cycle is seen in the long run."""
RESULTS = Path("build/results/soak.json")
_SCRIPT = (Path(__file__).parent / "guest_cycles.py").read_text()

pytestmark = [pytest.mark.usefixtures("trusted"), pytest.mark.timeout(CYCLE_S * (CYCLES + 10))]


def kernel_facts(node: Node) -> dict[str, Any]:
    """What the kernel holds for links and devices."""
    tcp = node.sh("grep ^TCP: /proc/net/sockstat").split()
    return {
        "ports": len(node.call("usb.used")),
        "match_busid": sorted(node.call("usb.matched")),
        "sockets": int(tcp[tcp.index("alloc") + 1]),
        "orphans": int(tcp[tcp.index("orphan") + 1]),
    }


def process_facts(node: Node, pid: int) -> dict[str, int]:
    """Descriptors of a process and its resident memory in KiB."""
    status = node.sh(f"ls /proc/{pid}/fd | wc -l; awk '/^VmRSS/ {{print $2}}' /proc/{pid}/status")
    fds, rss = status.split()
    return {"fds": int(fds), "rss_kib": int(rss)}


def state(pair: Pair, server: Process, importer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Of both nodes, between two cycles."""
    home(pair.exporter, "soaked")
    return {
        "exporter": {**kernel_facts(pair.exporter), **process_facts(pair.exporter, server.pid)},
        "importer": {**kernel_facts(pair.importer), **importer},
    }


def next_line(process: Process, number: int, seconds: float) -> dict[str, Any]:
    """The script's JSON line of this number, from 0."""
    process.wait_for(rf"(?:\{{.*\n[^{{]*){{{number + 1}}}", timeout=seconds)
    lines = [line for line in process.out.splitlines() if line.startswith("{")]
    found: dict[str, Any] = json.loads(lines[number])
    return found


def test_r25_nothing_grows_from_cycle_to_cycle(a_to_b: Pair) -> None:
    exporter, importer = a_to_b.exporter, a_to_b.importer
    exporter.call("gadget.storage", "soaked")
    exporter.call("usb.wait", "soaked", child="disks")
    importer.sh(f"rm -f {GO}")
    begun = time.monotonic()
    with serving(exporter) as server:
        words = [exporter.ip, home(exporter, "soaked")["busid"], WARM, CYCLES]
        command = ["/opt/usbdra/bin/python", "-c", _SCRIPT, *map(str, words)]
        process = importer.start(command)
        before = state(a_to_b, server, next_line(process, 0, CYCLE_S * WARM))
        importer.write(str(GO), "")
        for number in range(TOLD, CYCLES, TOLD):
            said = process.wait_for(rf"cycle {number}: (\d+) KiB\n", timeout=CYCLE_S * TOLD)
            memory = process_facts(exporter, server.pid)["rss_kib"], int(said[1])
            took = time.monotonic() - begun
            say(f"{number} of {CYCLES} cycles, {took:.0f} s; KiB at both ends: {memory}")
        told = next_line(process, 1, CYCLE_S * (CYCLES + 2))
        seconds = told.pop("seconds")
        process.wait()
        after = state(a_to_b, server, told)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    times = {"p50": statistics.median(seconds), "max": max(seconds)}
    whole = {"cycles": CYCLES, "seconds": round(time.monotonic() - begun), "cycle": times}
    RESULTS.write_text(json.dumps({**whole, "before": before, "after": after}, indent=1) + "\n")
    for side, was in before.items():
        now = after[side]
        grown = now.pop("rss_kib") - was.pop("rss_kib")
        assert grown < MEMORY_KIB, f"{side}: {grown} KiB in {CYCLES} cycles"
        # The importer's own numbers were taken with nothing attached; a socket may be closing.
        assert all(now[key] <= was[key] for key in ("fds", "ports", "orphans")), (side, was, now)
        assert now["match_busid"] == was["match_busid"], side
        assert now["sockets"] <= was["sockets"] + 1, (side, was, now)
