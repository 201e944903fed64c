# SPDX-License-Identifier: Apache-2.0
"""Programs of others that do the same: one in pure Python from PyPI, one in Go where it is at hand.

Owns how they get into a node and how they are started. Must not measure.

The Go tool is `go-usbip` of deckhouse/virtualization (images/virtualization-dra/cmd/usb/go-usbip).
Its module is on no module proxy, so nobody builds it here: whoever has its sources does, with
CGO_ENABLED=0 GOWORK=off, and names the program in BENCH_GO_USBIP.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bed.bed import Bed
from tests.bed.cache import digest, entry
from tests.bed.node import Node

PACKAGES = ("libusb-1.0-0",)
PYTHON = ("pyusbip==2.0.1", "libusb1==3.4.0")
"""A server that reads and writes devices by libusb, each URB through Python."""
PYTHON_PORT = 3260
GO = "/run/bench/go-usbip"
_FOLDER = "/run/bench/pyusbip"


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
def pyusbip(bed: Bed) -> Iterator[str]:
    """The server on node a; yields the options of b's usbip for it."""
    a = bed["a"]
    a.push(_python(), f"{_FOLDER}.tar")
    a.sh(f"mkdir -p {_FOLDER}; tar -xf {_FOLDER}.tar -C {_FOLDER}")
    words = ["--host", "0.0.0.0", "--port", str(PYTHON_PORT), "--no-control-plane"]
    server = a.start(["python3", "-m", "pyusbip", *words], env={"PYTHONPATH": _FOLDER})
    try:
        server.wait_for("ready", timeout=60)
        yield f"--tcp-port {PYTHON_PORT} attach -r {a.ip}"
    finally:
        server.stop()


def pyusbip_busid(node: Node, busid: str) -> str:
    """What pyusbip calls a device: its bus and its number on it, not its port."""
    device = f"/sys/bus/usb/devices/{busid}"
    return node.sh(f"echo $(cat {device}/busnum)-$(cat {device}/devnum)")


def _python() -> Path:
    def build(folder: Path) -> None:
        tree = folder / "tree"
        argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
        subprocess.run([*argv, "--target", str(tree), *PYTHON], check=True, timeout=600)
        with tarfile.open(folder / "tree.tar", "w") as archive:
            archive.add(tree, arcname=".")

    return entry("bench-peers", digest(PYTHON, "v1"), build) / "tree.tar"
