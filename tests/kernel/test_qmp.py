# SPDX-License-Identifier: Apache-2.0
"""QMP conversations on this host's own QEMU: a machine with an xHCI controller.

It runs, with nothing to boot: one that is stopped keeps descriptors that are removed (monitor/fds.c
`monitor_fdset_cleanup`).
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bed.host import program
from tests.contract import qmp_bodies

START_SECONDS = 60.0


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder, "q")
        command = [
            program("qemu-system-x86_64"), "-machine", "q35,accel=tcg", "-nodefaults",
            "-display", "none", "-m", "32", "-device", "qemu-xhci,id=xhci",
            "-qmp", f"unix:{socket},server=on,wait=off",
        ]  # fmt: skip
        with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
            try:
                end = time.monotonic() + START_SECONDS
                while not socket.exists() and time.monotonic() < end and process.poll() is None:
                    time.sleep(0.05)
                yield socket
            finally:
                process.kill()


@pytest.mark.parametrize("body", qmp_bodies.BODIES, ids=lambda body: body.__name__)
async def test_every_promise_holds_on_a_real_qemu(path: Path, body: qmp_bodies.Body) -> None:
    await body(path)
