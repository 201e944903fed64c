# SPDX-License-Identifier: Apache-2.0
"""Runs on the made-up machine of an agent: Prepare of a remote device, without a kernel's part.

    python -m bench.cluster.pair DISK MEMORY NAMESPACE ROUNDS AT_ONCE ENUMERATION_MS CLAIM=UID...

The nodes are two processes, the product's own parts on fake kernels that bind, attach and
enumerate at once: what is left is ours, and real answers of the API server. The claims'
records are durable below DISK; below MEMORY, a tmpfs, is what a node has in /sys, /dev and /run.
One thing is missing of a real link: its keys do not go to the kernel, which this one may not have;
the handshake is the same. In a round the first AT_ONCE claims are prepared side by side and given
back; a device comes ENUMERATION_MS after its attach, which real ones take their time for, all at
once. Prints JSON, a list of {"all", "prepared", "attached", "given_back", "floor"}: the seconds
until the last claim of the round was prepared; then milliseconds, of the round's last claim as the
agent logs them, and of floor.py.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cluster.cable import Cable
from bench.cluster.floor import floor
from tests.cluster.driver import DRIVER
from tests.fakes.certificates import certificates
from tests.fakes.kernel import FakeKernel, Remote
from usbdra.agent.devices import NodeDevices
from usbdra.agent.peers import ClaimGuard, Dialler, LiveClaims
from usbdra.agent.reporter import KubeReporter
from usbdra.agent.views import PublishedDevices
from usbdra.discovery.inventory import Inventory
from usbdra.discovery.live import LiveInventory
from usbdra.discovery.uevent import UeventHub
from usbdra.exporter.bind import Binder
from usbdra.exporter.local import LocalBroker
from usbdra.exporter.server import ExporterServer, Listen
from usbdra.exporter.stubhost import StubHost
from usbdra.importer.attach import Attacher
from usbdra.kube.client import KubeClient
from usbdra.kube.types import NODE
from usbdra.plugin.files import ClaimFiles
from usbdra.plugin.health import HealthBoard
from usbdra.plugin.locks import NodeLock
from usbdra.plugin.prepare import Preparer
from usbdra.plugin.records import Records
from usbdra.slices.build import SliceOptions, build
from usbdra.slices.publish import Owner, SlicePublisher
from usbdra.state.claims import ClaimRef, ClaimSchema
from usbdra.state.store import RecordStore
from usbdra.transport.ktls import Encryption
from usbdra.transport.tls import Identity, TlsFiles
from usbdra.types import ClaimUid, NodeName
from usbdra.vhci.driver import VhciDriver

EXPORTER, IMPORTER = NodeName("node-a"), NodeName("node-b")
CLAIMS = 16
SERIALS = tuple(f"PAIR{number:04d}" for number in range(CLAIMS))
STICKS = tuple(f"usb-0781-5581-{serial.lower()}" for serial in SERIALS)
PORT = 3241
SETTLE_SECONDS = 0.4
"""After a round: the exporter takes its device back, and both inventories hear of it, which would
be measured with the next round."""


class Lines(logging.Handler):
    """Keeps the milliseconds of the log's lines by message."""

    def __init__(self) -> None:
        super().__init__()
        self.took: dict[str, list[dict[str, float]]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line."""
        if hasattr(record, "took_ms"):
            self.took.setdefault(record.getMessage(), []).append(record.took_ms)


@dataclass(frozen=True)
class Importer:
    """Parts of node b."""

    preparer: Preparer
    dialler: Dialler
    records: Records
    events: UeventHub


@asynccontextmanager
async def exporter(
    folder: Path, identity: Identity, api: KubeClient, address: str
) -> AsyncIterator[dict[int, str]]:
    """Node a: publishes its sticks and gives them away; serials by devid."""
    async with AsyncExitStack() as stack:
        kernel = await stack.enter_async_context(FakeKernel(folder))
        for port, serial in enumerate(SERIALS, 1):
            kernel.stub.plug(port, serial=serial.encode())
        live = LiveInventory(Inventory(folder, node=EXPORTER), kernel.events)
        await follow(stack, live)
        options = SliceOptions(node=EXPORTER, group=DRIVER.partition(".")[2])
        uid = (await api.get(NODE, EXPORTER))["metadata"]["uid"]
        publisher = SlicePublisher(
            api,
            Owner(EXPORTER, uid, DRIVER),
            lambda dropped: build(live.snapshot.offers, {}, options),
        )
        stack.callback(asyncio.create_task(publisher.run()).cancel)
        await publisher.published()
        host = StubHost(folder, stub=kernel.stub, sysfs=kernel.stub)
        binder = Binder(folder, events=kernel.events, in_use=lambda busid: None, host=host)
        guard = ClaimGuard(api, DRIVER, EXPORTER, lambda name: None)
        broker = LocalBroker(binder, lambda: live.snapshot, authorise=guard.authorise)
        await broker.start()
        stack.push_async_callback(broker.stop)
        server = ExporterServer(
            broker,
            Listen((address,), PORT),
            identity=identity,
            encryption=Encryption.OFF,
        )
        await stack.enter_async_context(server)
        devices = [offer.device for offer in live.snapshot.offers]
        yield {device.busnum << 16 | device.devnum: device.serial or "" for device in devices}


@asynccontextmanager
async def importer(
    folder: Path, disk: Path, api: KubeClient, remotes: dict[int, Remote], enumeration: float
) -> AsyncIterator[Importer]:
    """Node b: prepares claims; what comes after an attach, by devid, and after how many seconds."""
    async with AsyncExitStack() as stack:
        kernel = await stack.enter_async_context(FakeKernel(folder, controllers=2))
        kernel.vhci.remotes, kernel.vhci.enumeration_delay = remotes, enumeration
        live = LiveInventory(Inventory(folder, node=IMPORTER), kernel.events)
        await follow(stack, live)
        vhci = VhciDriver(folder, native=kernel.vhci, lock_file=folder / "vhci.lock")
        identity = certificates().identity("b")
        records = Records(RecordStore(disk, ClaimSchema()))
        reporter = KubeReporter(api, DRIVER, IMPORTER)
        stack.callback(asyncio.create_task(reporter.run()).cancel)
        dialler = Dialler(api, lambda: identity, PORT, Encryption.OFF)
        preparer = Preparer(
            driver=DRIVER,
            node=IMPORTER,
            boot_id="bench",
            records=records,
            claims=LiveClaims(api),
            view=PublishedDevices(api, DRIVER, IMPORTER, lambda: live.snapshot),
            attacher=NodeDevices(
                peers=dialler,
                attacher=Attacher(vhci, kernel.events, root=folder),
                vhci=vhci,
                events=kernel.events,
                snapshot=lambda: live.snapshot,
                leases=Nobody(),
                root=folder,
            ),
            files=ClaimFiles(DRIVER, folder / "cdi", folder / "claim-dirs", lambda link: None),
            reporter=reporter,
            node_lock=NodeLock(folder / "node.lock", records.load),
            board=HealthBoard(),
        )
        stack.push_async_callback(preparer.aclose)
        yield Importer(preparer, dialler, records, kernel.events)


@asynccontextmanager
async def other_node(folder: Path, cable: Cable | None = None) -> AsyncIterator[dict[int, Remote]]:
    """The exporter in a process of its own, while this lasts, behind the cable if there is one;
    its devices by devid."""
    keys = certificates().identity("a").files
    address = cable.address if cable is not None else "127.0.0.1"
    what = (address, folder, keys.cert, keys.key, keys.ca)
    words = [sys.executable, "-m", "bench.cluster.pair", "exporter", *map(str, what)]
    pipe = asyncio.subprocess.PIPE
    if cable is not None:
        words = cable.behind(words)
    process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if cable is not None:
            cable.lay(process.pid)
            process.stdin.write(b"\n")
        said = json.loads(await process.stdout.readline())
        yield {int(devid): Remote(serial=serial.encode()) for devid, serial in said.items()}
    finally:
        process.stdin.close()
        await process.wait()


async def export(address: str, folder: Path, keys: TlsFiles) -> None:
    """The exporter's process: until nobody holds its standard input any more."""
    api = await KubeClient.connect()
    try:
        async with exporter(folder, Identity(keys), api, address) as serials:
            print(json.dumps(serials), flush=True)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    finally:
        await api.aclose()


class Nobody:
    """Leases of a node that gives nothing away."""

    async def reclaim(self, offer: object) -> bool:
        """Nobody has it."""
        return False


async def follow(stack: AsyncExitStack, live: LiveInventory) -> None:
    """Keep an inventory current as long as the stack lasts."""
    live.inventory.resync()
    live.inventory.retry()  # a device of a fake kernel is whole from the first
    stack.callback(asyncio.create_task(live.run()).cancel)


async def rounds(
    disk: Path, memory: Path, refs: list[ClaimRef], count: int, enumeration: float
) -> list[dict[str, Any]]:
    """Prepare and give back; see above. The first round is a warm-up."""
    lines, floors, whole = Lines(), [], []
    identity, peer = certificates().identity("b"), certificates().identity("a")
    logging.getLogger("usbdra").addHandler(lines)
    logging.getLogger("usbdra").setLevel(logging.INFO)
    ours = await KubeClient.connect()
    try:
        async with (
            other_node(memory / "a") as remotes,
            importer(memory / "b", disk, ours, remotes, enumeration) as node,
        ):
            preparer = node.preparer
            for _ in range(count + 1):
                started = time.monotonic()
                await asyncio.gather(*(preparer.prepare(ref) for ref in refs))
                whole.append(time.monotonic() - started)
                await asyncio.gather(*(preparer.unprepare(ref) for ref in refs))
                await asyncio.sleep(SETTLE_SECONDS)
                floors.append(await floor(ours, refs[0], disk, identity, peer))
                await asyncio.sleep(SETTLE_SECONDS)
    finally:
        await ours.aclose()
    messages = ("claim prepared", "device attached", "claim given back")
    last = slice(2 * len(refs) - 1, None, len(refs))
    series = [whole[1:], *(lines.took[message][last] for message in messages), floors[1:]]
    keys = ("all", "prepared", "attached", "given_back", "floor")
    return [dict(zip(keys, each, strict=True)) for each in zip(*series, strict=True)]


if __name__ == "__main__":
    if sys.argv[1] == "exporter":
        folder, *files = map(Path, sys.argv[3:])
        asyncio.run(export(sys.argv[2], folder, TlsFiles(*files)))
        sys.exit()
    disk, memory, namespace, number, at_once, milliseconds, *named = sys.argv[1:]
    pairs = [word.split("=", 1) for word in named[: int(at_once)]]
    claims = [ClaimRef(namespace, name, ClaimUid(uid)) for name, uid in pairs]
    work = rounds(Path(disk), Path(memory), claims, int(number), int(milliseconds) / 1e3)
    print(json.dumps(asyncio.run(work)))
