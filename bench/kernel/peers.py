# SPDX-License-Identifier: Apache-2.0
"""Programs of others that do the same: one in pure Python from PyPI, one in Go where it is at hand.

Owns how they get into a node and how they are started. Must not measure.

The Go tool is `go-usbip` of deckhouse/virtualization (images/virtualization-dra/cmd/usb/go-usbip).
Its module is on no module proxy, so nobody builds it here: whoever has its sources does, with
CGO_ENABLED=0 GOWORK=off, and names the program in BENCH_GO_USBIP.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bed.bed import Bed
from tests.bed.wheel import wheels_of

PYTHON = ("usbip==0.7.0",)
"""Devices in pure Python: each URB is read, answered and written by it. What exports real devices,
pyusbip 2.0.1, does not serve a disk here: it attaches, no bulk transfer comes back, and its server
ends with the kernel's first unlink."""
PYTHON_PORT = 3260
PYTHON_BUSID = "1-1"
GO = "/run/bench/go-usbip"
_WHEEL = "/run/bench/usbip.whl"
"""Python imports from it as it is."""


def go_tool() -> Path | None:
    """The Go tool on this machine, if there is one."""
    named = os.environ.get("BENCH_GO_USBIP")
    return Path(named) if named else None


def push_go(bed: Bed) -> None:
    """The Go tool into node b."""
    tool = go_tool()
    assert tool is not None, "BENCH_GO_USBIP is not set"
    bed["b"].push(tool, GO)
    bed["b"].run(["chmod", "755", GO])


@contextmanager
def python_disk(bed: Bed, serial: str, mib: int) -> Iterator[str]:
    """A disk of node a's memory, served by Python; yields the options of b's usbip for it."""
    a = bed["a"]
    (wheel,) = wheels_of(list(PYTHON)).glob("usbip-*.whl")
    a.push(wheel, _WHEEL)
    a.push(Path(__file__).with_name("guest_disk.py"), "/run/bench/guest_disk.py")
    words = ["python3", "/run/bench/guest_disk.py", str(PYTHON_PORT), serial, str(mib)]
    server = a.start(words, env={"PYTHONPATH": _WHEEL})
    try:
        server.wait_for("ready", timeout=60)
        yield f"--tcp-port {PYTHON_PORT} attach -r {a.ip}"
    finally:
        server.stop()
