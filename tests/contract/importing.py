# SPDX-License-Identifier: Apache-2.0
"""The other end of exporting.py: node b, whose agent prepares claims for the stick of node a.

Plugin, devices and dialler are the real ones, on a fake kernel of its own; the API is in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.contract.exporting import CLAIM, NAME
from tests.fakes.certificates import certificates
from tests.fakes.kernel import FakeKernel, Remote
from tests.fakes.kube import FakeKube
from tests.unit.plugin.claims import DRIVER, claim, result
from tests.unit.plugin.world import FakeApi
from tests.waiting import until
from usbdra.agent.devices import NodeDevices
from usbdra.agent.peers import Dialler
from usbdra.agent.reporter import KubeReporter
from usbdra.discovery.inventory import scan
from usbdra.importer.attach import Attacher
from usbdra.kube.types import NODE, RESOURCE_CLAIM
from usbdra.plugin.contracts import UsbFact
from usbdra.plugin.files import ClaimFiles
from usbdra.plugin.health import HealthBoard
from usbdra.plugin.locks import NodeLock
from usbdra.plugin.prepare import Preparer
from usbdra.plugin.records import Records
from usbdra.state.claims import ClaimRef, ClaimSchema, Identity
from usbdra.state.store import RecordStore
from usbdra.tracing.spans import OFF, Tracer
from usbdra.transport.ktls import Encryption
from usbdra.types import DeviceName, NodeName, Offer, Speed
from usbdra.vhci.driver import VhciDriver

REF = ClaimRef(CLAIM.namespace, CLAIM.name, CLAIM.uid)
A, B = NodeName("node-a"), NodeName("node-b")


@dataclass
class Importing:
    """Node b: its plugin, its kernel, and the API's objects."""

    preparer: Preparer
    kernel: FakeKernel
    kube: FakeKube
    reporter: KubeReporter

    async def told(self) -> None:
        """When the API has what the claim's status should say."""
        await until(lambda: not self.reporter.waiting)


class _Published(FakeApi):
    """What node a has published."""

    def owner(self, pool: str) -> NodeName | None:
        return A


class Nobody:
    """Leases of a node that gives nothing away."""

    async def reclaim(self, offer: Offer) -> bool:
        return False


@asynccontextmanager
async def importing(root: Path, port: int, tracer: Tracer = OFF) -> AsyncIterator[Importing]:
    """Node b, with a claim for the stick that node a's exporter gives at `port`."""
    kube = FakeKube()
    address = {"type": "InternalIP", "address": "127.0.0.1"}
    kube.put(NODE, {"metadata": {"name": A}, "status": {"addresses": [address]}})
    kube.put(
        RESOURCE_CLAIM,
        {"metadata": {"namespace": REF.namespace, "name": REF.name, "uid": REF.uid}},
    )
    api = _Published()
    fact = UsbFact(DeviceName(NAME), A, Speed.HIGH, Identity("0781", "5581", "A1"))
    api.facts = {("usb-node-a", NAME): fact}
    allocated = claim(result("usb", "usb-node-a", NAME), name=REF.name, uid=REF.uid)
    api.claims[REF.name] = allocated
    identity = certificates().identity("b")
    async with FakeKernel(root) as kernel:
        kernel.vhci.remote = Remote(serial=b"A1")
        vhci = VhciDriver(root, native=kernel.vhci)
        records = Records(RecordStore(root / "state", ClaimSchema()))
        reporter = KubeReporter(kube, DRIVER, B)
        reporting = asyncio.create_task(reporter.run())
        preparer = Preparer(
            driver=DRIVER,
            node=B,
            boot_id="boot",
            records=records,
            claims=api,
            view=api,
            attacher=NodeDevices(
                peers=Dialler(kube, lambda: identity, port, Encryption.ALLOWED),
                attacher=Attacher(vhci, kernel.events, root=root),
                vhci=vhci,
                events=kernel.events,
                snapshot=lambda: scan(root, node=B),
                leases=Nobody(),
                root=root,
            ),
            files=ClaimFiles(DRIVER, root / "cdi", root / "claims", lambda link: None),
            reporter=reporter,
            node_lock=NodeLock(root / "node.lock", records.load),
            board=HealthBoard(),
            tracer=tracer,
        )
        try:
            yield Importing(preparer, kernel, kube, reporter)
        finally:
            await preparer.aclose()
            reporting.cancel()
            await asyncio.wait([reporting])
