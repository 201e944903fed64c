# SPDX-License-Identifier: Apache-2.0
"""The real controller as a process beside a control plane, and what it has cost so far.

Owns the process. Needs no rights of its own: the kubeconfig says who it is.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.api import chart
from usbdra.kube.client import KubeClient
from usbdra.kube.custom import Contract
from usbdra.kube.types import Object
from usbdra.kube.watch import Reflector

NUSB = Contract(chart.GROUP).node_device
PORT = "18081"
AT_ONCE = 16
LIMIT_SECONDS = 1500.0


async def in_turns(work: Iterator[Awaitable[Any]]) -> None:
    """Await all of it, AT_ONCE at a time."""

    async def one() -> None:
        for step in work:
            await step

    await asyncio.gather(*(one() for _ in range(AT_ONCE)))


async def all_shown(admin: KubeClient, done: Callable[[Object], bool], count: int) -> None:
    """Wait until so many NodeUSBDevices are as wanted."""
    reflector, good = Reflector(admin, NUSB), set()
    async with asyncio.timeout(LIMIT_SECONDS), aclosing(reflector.run()) as news:
        async for change in news:
            key, item = getattr(change, "key", None), getattr(change, "new", None)
            if item is not None and done(item):
                good.add(key)
            if len(good) >= count:
                return


@asynccontextmanager
async def running(kubeconfig: Path) -> AsyncIterator[int]:
    """The controller's process id."""
    words = ("--kubeconfig", str(kubeconfig), "--namespace", chart.NAMESPACE)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "usbdra", "controller", *words, "--health-port", PORT,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process.pid
    finally:
        process.terminate()
        await process.wait()


def cost(pid: int) -> dict[str, float]:
    """Peak resident memory and time on a CPU so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0])
    return {"peak_mib": round(peak / 1024), "cpu_s": round(cpu_seconds(pid), 1)}


def cpu_seconds(pid: int) -> float:
    """Time on a CPU so far, of all threads there were."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
