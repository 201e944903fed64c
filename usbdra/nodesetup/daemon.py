# SPDX-License-Identifier: Apache-2.0
"""The process of `usbdra node-setup`: builds the parts, runs them until told to stop.

Owns composition. Stopping leaves modules and label as they are: agents depend on both.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from usbdra import kmod
from usbdra.discovery.uevent import NetlinkSource, UeventHub
from usbdra.kube.client import KubeClient
from usbdra.nodesetup.libkmod import Libkmod
from usbdra.nodesetup.setup import NodeSetup

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupOptions:
    """What node preparation is told at its start."""

    node: str
    group: str
    ready_file: Path | None = None
    """There while the node is ready: for the readiness probe."""
    kubeconfig: Path | None = None
    root: Path = Path("/")


async def run(options: SetupOptions) -> None:
    """Keep the node prepared until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        api = await KubeClient.connect(options.kubeconfig)
        stack.push_async_callback(api.aclose)
        events = UeventHub(NetlinkSource())
        stack.callback(events.close)
        events.start()
        loader = Libkmod(options.root, kmod.kernel_release(options.root))
        setup = NodeSetup(
            api,
            loader,
            events,
            node=options.node,
            group=options.group,
            root=options.root,
            on_ready=_Marker(options.ready_file),
        )
        running = asyncio.create_task(setup.run())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        running.cancel()
        try:
            await running
        except asyncio.CancelledError:
            log.info("node-setup stopped; modules and label stay")


class _Marker:
    """Keeps a file there while it is told True."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        if path is not None:
            path.unlink(missing_ok=True)

    def __call__(self, ready: bool) -> None:
        if self._path is None:
            return
        if ready:
            self._path.touch()
        else:
            self._path.unlink(missing_ok=True)
