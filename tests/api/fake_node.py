# SPDX-License-Identifier: Apache-2.0
"""The real agent of a node whose kernel is fake: it binds, attaches and enumerates at once.

    python -m tests.api.fake_node NODE FOLDER KUBECONFIG PKI METRICS_PORT [SERIAL...]

A stick for each SERIAL is plugged into EXPORTER; to any other NODE they come when attached.
Prepares and gives back claims as it is told on standard input, `prepare NAMESPACE NAME UID` or
`unprepare ...`, a line each, and answers `done`. Everything else is the product's own: links are
TCP between two such processes, counted by the machine's kernel. Their keys do not go to the
kernel, which may have no TLS.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path
from typing import Any

from tests.fakes.kernel import FakeKernel, Remote
from usbdra import log
from usbdra.agent import daemon
from usbdra.agent.metering import Metering
from usbdra.agent.options import AgentOptions
from usbdra.agent.probes import Probes, socket_path
from usbdra.exporter.bind import Binder
from usbdra.exporter.stubhost import StubHost
from usbdra.kube.client import KubeClient
from usbdra.plugin.files import ClaimFiles
from usbdra.state.claims import ClaimRef
from usbdra.transport.ktls import Encryption
from usbdra.types import ClaimUid, NodeName
from usbdra.vhci.driver import VhciDriver

PORT = 3241
EXPORTER, IMPORTER = "node-a", "node-b"
ADDRESS = {EXPORTER: "127.0.0.1", IMPORTER: "127.0.0.2"}


def plug(kernel: FakeKernel, serials: list[str]) -> dict[int, Remote]:
    """Plug in a stick for each serial; what each looks like elsewhere, by devid."""
    sticks = {s: kernel.stub.plug(n, serial=s.encode()) for n, s in enumerate(serials, 1)}
    return {d.bus << 16 | d.devnum: Remote(serial=s.encode()) for s, d in sticks.items()}


def on_fake_kernel(kernel: FakeKernel) -> Any:
    """The agent's module with this kernel where it would take the machine's."""
    parts: Any = daemon
    host = StubHost(kernel.root, stub=kernel.stub, sysfs=kernel.stub)
    parts.VhciDriver = partial(VhciDriver, native=kernel.vhci)
    parts.Binder = partial(Binder, host=host)
    parts.ClaimFiles = partial(ClaimFiles, check=lambda link: None)
    return parts


async def serve(node: str, folder: Path, kubeconfig: Path, pki: Path, port: int) -> None:
    """Be the agent until standard input ends."""
    options = AgentOptions(
        node=NodeName(node), pod_uid=node, port=PORT, listen=(ADDRESS[node],), root=folder,
        encryption=Encryption.OFF, pki_dir=pki, run_dir=folder / "run", state_dir=folder / "lib",
        kubelet_dir=folder / "kubelet", cdi_dir=folder / "cdi", claims_dir=folder / "claims",
        link_report_seconds=0, metrics=("127.0.0.1", port),
    )  # fmt: skip
    (options.kubelet_dir / "plugins_registry").mkdir(parents=True)
    probes, metering = Probes(socket_path(options.run_dir, node)), Metering(options)
    await probes.start()
    api = await KubeClient.connect(kubeconfig, on_answer=metering.answered)
    async with FakeKernel(folder) as kernel:
        serials = sys.argv[6:]
        if node == EXPORTER:
            plug(kernel, serials)
        else:  # what comes here has the numbers that it has there
            async with FakeKernel(folder / "twin") as twin:
                kernel.vhci.remotes = plug(twin, serials)
        agent = on_fake_kernel(kernel).Agent(options, api, kernel.events, probes, metering)
        task = asyncio.create_task(agent.run())
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            word, namespace, name, uid = line.split()
            await getattr(agent._preparer, word)(ClaimRef(namespace, name, ClaimUid(uid)))
            print("done", flush=True)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await probes.stop()
    await api.aclose()


if __name__ == "__main__":
    log.setup("info", "json")
    name, directory, config, keys, metrics = sys.argv[1:6]
    asyncio.run(serve(name, Path(directory), Path(config), Path(keys), int(metrics)))
