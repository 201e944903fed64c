# SPDX-License-Identifier: Apache-2.0
"""A flood of an exporter's port while a link of it copies a disk: the link belongs to the kernel.

The exporter is the process without privilege, in front of an agent's own parts.

The flood comes from twenty addresses on the nodes' own network: two thousand connections that are
opened and say nothing, one byte, too much or rubbish, then twenty new ones a second, and some that
send a byte at a time. The emulated node takes some ten times as long as a real one for each.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.bed.bed import Bed
from tests.bed.node import Node, Process
from tests.bed.process import spawn, stop
from tests.kernel.conftest import LOGS
from tests.kernel.product import attach, usbdra

pytestmark = pytest.mark.usefixtures("trusted")
SOURCES = [f"192.168.77.{number}" for number in range(101, 121)]
PER_SECOND = 20
PORT = 3241
MIB = 2
COPIES = 2
LEAST_PART = 0.4
"""Of the undisturbed speed, on one emulated processor that strangers and link share. Seen: 0.7."""
MAX_RSS_KIB = 80 * 1024
MAX_DESCRIPTORS = 128 + 64
TRIES = 5
BURST_S = 120.0
AGENT = "/run/bed/exporting_agent.py"
NOBODY = 64241
"""The exporter's user, as the chart has it."""


@contextmanager
def flood(bed: Bed, node: Node, log: Path) -> Iterator[Callable[[], None]]:
    """The node's port is flooded while the block runs; yields a wait for the last of the two
    thousand. That many of them were made is seen to at the end."""
    network = bed.network
    for address in SOURCES:
        network.host_address("replace", address)
    argv = [sys.executable, "-m", "tests.fakes.flood", node.ip, str(PORT), str(PER_SECOND)]
    with log.open("wb") as out:
        program = spawn(network.inside([*argv, *SOURCES]), stdout=out)

    def wait_for(text: str) -> None:
        deadline = time.monotonic() + BURST_S
        while text not in log.read_text():
            assert program.poll() is None, log.read_text()
            assert time.monotonic() < deadline, f"the flood does not say {text!r}"
            time.sleep(0.1)

    try:
        wait_for("begins")
        yield lambda: wait_for("flooding")
    finally:
        stop(program)
        for address in SOURCES:
            network.host_address("del", address)
    assert int(log.read_text().rpartition("made ")[2]) > 1000


@contextmanager
def exporting(node: Node, peer: Node) -> Iterator[tuple[Process, Process]]:
    """The exporter without privilege and the agent behind it, as in the agent's pod."""
    node.push(Path(__file__).with_name("exporting_agent.py"), AGENT)
    agent = node.start(["/opt/usbdra/bin/python", AGENT, node.name, peer.name, peer.ip])
    try:
        agent.wait_for("exporting")
        ids = f"--reuid={NOBODY} --regid={NOBODY} --clear-groups --no-new-privs"
        exporter = node.start(["setpriv", *ids.split(), "usbdra", "exporter"])
        try:
            exporter.wait_for("exporter listens", timeout=60)
            yield exporter, agent
        finally:
            exporter.stop()
    finally:
        agent.stop()


def copy(importer: Node, disk: str, wrote: str) -> float:
    """MiB a second of one copy, whose checksum is right."""
    seen: dict[str, Any] = importer.call("raw.read_sha256", disk, MIB, timeout=120)
    assert seen["sha256"] == wrote
    return float(MIB / seen["seconds"])


def costs(program: Process) -> tuple[int, int]:
    """(resident KiB, open descriptors) of a process."""
    status = program.node.sh(f"grep VmRSS /proc/{program.pid}/status; ls /proc/{program.pid}/fd")
    resident, *descriptors = status.splitlines()
    return int(resident.split()[1]), len(descriptors)


def served(importer: Node, host: str, device: str) -> int:
    """How many tries a newcomer with a certificate needs for a device; an agent tries again too."""
    for tried in range(1, TRIES + 1):
        answer: dict[str, Any] = usbdra(importer, "attach", host, device, check=False)
        if "port" in answer:
            return tried
    pytest.fail(f"no device within {TRIES} tries: {answer}")


def keep(facts: dict[str, Any]) -> None:
    """What was measured, beside the consoles' logs; speeds in MiB a second."""
    LOGS.mkdir(parents=True, exist_ok=True)
    (LOGS / "flood.json").write_text(json.dumps(facts) + "\n")


def test_a_flood_neither_stops_a_link_nor_shuts_anybody_out(bed: Bed, tmp_path: Path) -> None:
    a, b = bed["a"], bed["b"]
    for name in ("copied", "newcomer"):
        a.call("gadget.storage", name)
        a.call("usb.wait", name, child="disks")
    wrote = a.call("raw.fill", a.call("usb.find", "copied")["disks"][0], MIB)
    with exporting(a, b) as programs:
        attach(b, a.ip, "copied")
        disk = b.call("usb.find", "copied", imported=True)["disks"][0]
        quiet = [copy(b, disk, wrote) for _ in range(COPIES)]
        with flood(bed, a, tmp_path / "flood.log") as all_there:
            flooded = [copy(b, disk, wrote) for _ in range(COPIES)]
            all_there()
            resident, descriptors = zip(*map(costs, programs), strict=True)
            tries = served(b, a.ip, "newcomer")
            flooded.append(copy(b, disk, wrote))
        quiet.append(copy(b, disk, wrote))
        keep({"quiet": quiet, "flooded": flooded, "resident_kib": resident, "tries": tries})
        assert sum(flooded) / sum(quiet) > LEAST_PART, (quiet, flooded)
        assert max(resident) < MAX_RSS_KIB
        assert max(descriptors) < MAX_DESCRIPTORS
        b.call("usb.detach_all")
        for name in ("copied", "newcomer"):
            a.call("usb.wait", name, child="disks")
