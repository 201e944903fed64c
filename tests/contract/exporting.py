# SPDX-License-Identifier: Apache-2.0
"""A node whose exporter is a real unprivileged process; its agent is this process.

Desk, guard and evidence are the real ones, in front of the real broker on the fake kernel. Links
are encrypted where this machine's kernel has TLS, in clear elsewhere.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.certificates import certificates
from tests.fakes.exporter import EMPTY, UID, ExporterProcess
from tests.fakes.kernel import FakeKernel
from tests.fakes.sysfs import FakeDevice
from tests.waiting import until
from usbdra.agent.export import Export
from usbdra.agent.options import AgentOptions
from usbdra.discovery.inventory import scan
from usbdra.exporter.bind import Binder
from usbdra.exporter.evidence import Addresses
from usbdra.exporter.guard import OnRefused
from usbdra.exporter.lease import Authorise, Ports
from usbdra.exporter.local import LocalBroker
from usbdra.exporter.stubhost import BindLimits, StubHost
from usbdra.importer.dial import Link, dial
from usbdra.tracing.spans import OFF, Tracer
from usbdra.transport.ktls import Encryption
from usbdra.transport.sockets import LinkTimeouts
from usbdra.types import ClaimUid, NodeName
from usbdra.usbip.extension import ClaimRef

NAME = "usb-0781-5581-a1"
CLAIM = ClaimRef("lab", "one", ClaimUid("u-1"))


@dataclass
class World:
    """A node with a stick; `nodes` are the addresses that the API server knows."""

    kernel: FakeKernel
    stick: FakeDevice
    exporter: ExporterProcess
    nodes: dict[str, set[str]]

    @asynccontextmanager
    async def link(self, who: str = "b", answer: float = 15.0) -> AsyncIterator[Link]:
        link = await dial(
            "127.0.0.1",
            self.exporter.port,
            identity=certificates().identity(who),
            expect="node-a",
            encryption=Encryption.ALLOWED,
            timeouts=LinkTimeouts(answer=answer),
        )
        async with link:
            yield link

    async def given_back(self) -> None:
        # Sooner than a desk gives up who says nothing.
        await until(lambda: driver_of(self.stick) == "usb" and not self.kernel.sockets, within=5)


def driver_of(device: FakeDevice) -> str | None:
    try:
        return os.readlink(device.path / "driver").rpartition("/")[2]
    except FileNotFoundError:  # the writes happen in a thread of their own
        return None


@asynccontextmanager
async def running(
    root: Path,
    *,
    authorise: Authorise | None = None,
    addresses: Addresses | None = None,
    on_refused: OnRefused | None = None,
    ports: Ports | None = None,
    tracer: Tracer = OFF,
    variables: Mapping[str, str] = EMPTY,
) -> AsyncIterator[World]:
    """A node as above, its exporter listening, until the end.

    Who asks the API server gives `authorise` and `addresses`; else every claim is right, and a node
    is where `World.nodes` says. `ports` hears of sessions; the agent traces by `tracer`, the
    exporter as its `variables` say.
    """
    exporter = ExporterProcess(variables=variables)
    nodes = {"node-b": {"127.0.0.1"}}

    async def known(node: NodeName) -> set[str]:
        return nodes.get(node, set())

    async with FakeKernel(root) as kernel:
        stick = kernel.stub.plug(3, serial=b"A1")
        limits = BindLimits(status=0.2, driver=0.1)
        host = StubHost(kernel.root, stub=kernel.stub, sysfs=kernel.stub, limits=limits)
        binder = Binder(kernel.root, events=kernel.events, in_use=lambda busid: None, host=host)
        broker = LocalBroker(
            binder, lambda: scan(kernel.root, node="a"), authorise=authorise, ports=ports
        )
        await broker.start()
        options = AgentOptions(
            node=NodeName("node-a"),
            pod_uid="p",
            port=exporter.port,
            encryption=Encryption.ALLOWED,
            exporter="process",
            exporter_socket=exporter.socket,
            exporter_uid=UID,
        )
        export = Export(
            options,
            broker,
            pki=lambda: certificates().a,
            addresses=addresses or known,
            on_refused=on_refused,
            tracer=tracer,
        )
        serving = asyncio.create_task(export.run())
        async with exporter:
            yield World(kernel, stick, exporter, nodes)
        serving.cancel()
        await asyncio.wait([serving])
        await broker.stop()
