# SPDX-License-Identifier: Apache-2.0
"""The process of `usbdra node-setup`: builds the parts, runs them until told to stop.

Owns composition. Stopping leaves modules and label as they are: agents depend on both.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from usbdra import kmod
from usbdra.discovery.uevent import NetlinkSource, UeventHub
from usbdra.dumping import StateDump
from usbdra.kube.client import KubeClient
from usbdra.nodesetup.libkmod import Libkmod
from usbdra.nodesetup.metering import Metering
from usbdra.nodesetup.setup import NodeSetup
from usbdra.stopping import until_told


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupOptions:
    """What node preparation is told at its start."""

    node: str
    group: str
    ready_file: Path | None = None
    """There while the node is ready: for the readiness probe."""
    metrics: tuple[str, int] | None = None
    """Address and TCP port of /metrics; None for no such listener."""
    kubeconfig: Path | None = None
    root: Path = Path("/")


async def run(options: SetupOptions) -> None:
    """Keep the node prepared until SIGTERM or SIGINT."""
    dump = StateDump()
    await until_told(_serve(options, dump), "node-setup", dump)


async def _serve(options: SetupOptions, dump: StateDump) -> None:
    async with AsyncExitStack() as stack:
        metering = Metering(options.metrics)
        api = await KubeClient.connect(options.kubeconfig, on_answer=metering.answered)
        stack.push_async_callback(api.aclose)
        events = UeventHub(NetlinkSource())
        stack.callback(events.close)
        events.start()
        setup = NodeSetup(
            api,
            Libkmod(options.root, kmod.kernel_release(options.root)),
            events,
            node=options.node,
            group=options.group,
            root=options.root,
            on_ready=_Marker(options.ready_file),
        )
        dump.add("node", lambda: setup.seen().told())
        async with asyncio.TaskGroup() as group:
            group.create_task(metering.serve(setup.seen))
            group.create_task(setup.run())


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
