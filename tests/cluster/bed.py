# SPDX-License-Identifier: Apache-2.0
"""The cluster bed: one call makes a Kubernetes cluster of real parts, one block later it is gone.

Owns how machines, control plane and nodes are put together. Each part lives in a module of its
own; nothing here knows of usbdra.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.bed.bed import DEFAULT_MODULES, Bed, NodeSpec, from_description
from tests.bed.clusterbin import cluster_binary
from tests.bed.errors import BedError
from tests.bed.instance import detached_beds, named
from tests.bed.net import HOST_IP4
from tests.bed.node import Node
from tests.bed.progress import say, step
from tests.bed.rootfs import RootSpec
from tests.bed.wheel import native_digest
from tests.cluster.api import ClusterApi
from tests.cluster.controlplane import ControlPlane
from tests.cluster.netns import add_route, enable_forwarding
from tests.cluster.node import KubeNode, NodeAddress
from tests.cluster.payload import MOUNT, PACKAGES, payload_image
from tests.cluster.runtime_disk import runtime_disk

# any of those that were left running
ANY = "running"
# tells of a cluster that was left running, in its folder
DESCRIPTION = "cluster.json"


@dataclass(frozen=True)
class ClusterSpec:
    """What a cluster is made of.

    Attributes:
        kernels: node name -> kernel series, in the order of their addresses.
        feature_gates: set alike on the control plane and on the kubelets.
        archives: container images to import on every node, as `tests.cluster.images` writes them.
        packages: more Debian packages for the nodes.
        modules: kernel modules loaded at boot.
        memory: MiB a node.
        outside: machines on the nodes' network that are no nodes of the cluster; theirs are the
            addresses after those of the nodes.
    """

    kernels: Mapping[str, str] = field(default_factory=lambda: {"a": "6.12", "b": "6.1"})
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    archives: Sequence[Path] = ()
    packages: tuple[str, ...] = ()
    modules: tuple[str, ...] = DEFAULT_MODULES
    memory: int = 2048
    outside: Sequence[NodeSpec] = ()


class ClusterBed:
    """A control plane on this host and nodes in virtual machines, on a private network.

    Use as a context manager, from a thread that outlives it. When the block ends by an exception
    all logs are copied to `logs` first. A detached one runs on when its process ends, until
    `tests.bed.instance.remove`, and other processes can `adopt` it.
    """

    def __init__(
        self, spec: ClusterSpec | None = None, logs: Path | None = None, *, detached: bool = False
    ) -> None:
        self.spec = spec or ClusterSpec()
        self.logs = logs
        self.detached = detached
        self.nodes: dict[str, KubeNode] = {}
        self.native = native_digest()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        try:
            self.up()
        except BaseException:
            self._give_up()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.down()
        else:
            self._give_up()

    def machine(self, name: str) -> Node:
        """The machine of a node, or outside: run commands, plug USB devices, pull its power."""
        return self.bed[name]

    def up(self) -> None:
        """Make everything; returns with every node Ready and its images imported."""
        spec = self.spec
        binary = cluster_binary()
        payload, data = payload_image(), runtime_disk(spec.archives)
        root = RootSpec(packages=(*PACKAGES, *spec.packages))
        machines = [
            NodeSpec(
                name,
                kernel=kernel,
                root=root,
                memory=spec.memory,
                drives=(("cluster", payload, MOUNT),),
                modules=spec.modules,
                copies=(data,),
            )
            for name, kernel in spec.kernels.items()
        ]
        machines += spec.outside
        self.bed = self._stack.enter_context(Bed(machines, detached=self.detached))
        (self.bed.folder / "control-plane").mkdir()
        with step("starting the control plane"):
            self._stack.enter_context(self._control_plane(binary))
        self._open_api(binary)
        with step("starting containerd and the kubelet on every node"):
            self._join()
        if self.detached:
            self._describe()

    def adopt(self, folder: Path) -> None:
        """Go on with a detached cluster that another process has left running."""
        known: dict[str, Any] = json.loads((folder / DESCRIPTION).read_text())
        archives = [Path(archive) for archive in known["archives"]]
        self.native = known["native"]
        self.spec = ClusterSpec(feature_gates=known["feature_gates"], archives=archives)
        self.bed = from_description(folder, known["nodes"])
        self._stack.callback(self.bed.down)
        self._control_plane(cluster_binary())
        self._stack.callback(self.plane.let_go)
        self.plane.take_over(known["control_plane"])
        self._open_api(cluster_binary())
        self._meet()

    def reboot(self, name: str) -> None:
        """Switch a machine off and on, start its daemons, wait until its kubelet is Ready again.

        Its files are safe before the power goes. A new QEMU boots twice as fast under emulation
        as one that was reset: that one first throws away what it has translated, page by page.
        """
        machine = self.bed[name]
        machine.run("sync")
        machine.power_off()
        machine.power_on()
        self.nodes[name].start()
        self.api.wait_nodes_ready([name], boot_id=machine.boot_id)

    def down(self) -> None:
        """End everything, in reverse order."""
        self._stack.close()

    def collect(self, folder: Path) -> None:
        """Copy the logs of the control plane and of every node that still answers."""
        folder.mkdir(parents=True, exist_ok=True)
        for log in self.plane.logs:
            shutil.copy2(log, folder)
        for node in self.nodes.values():
            node.collect(folder)

    def _control_plane(self, binary: Path) -> ControlPlane:
        self.plane = ControlPlane(
            binary,
            self.bed.network.name,
            self.bed.folder / "control-plane",
            HOST_IP4,
            self.spec.feature_gates,
            detached=self.detached,
            keep_fds=self.bed.lock_fds if self.detached else (),
        )
        return self.plane

    def _open_api(self, binary: Path) -> None:
        self.api = ClusterApi(self.plane.admin_kubeconfig, (str(binary), "kubectl"))
        self._stack.callback(self.api.close)

    def _meet(self) -> None:
        """Give each machine its place in the cluster, by the order of the machines."""
        outside = {machine.name for machine in self.spec.outside}
        for index, (name, machine) in enumerate(self.bed.nodes.items()):
            if name in outside:
                continue
            where = NodeAddress(machine.ip, HOST_IP4, f"10.244.{index}.0/24")
            self.nodes[name] = KubeNode(machine, where)

    def _join(self) -> None:
        namespace = self.bed.network.name
        enable_forwarding(namespace)
        self._meet()
        for name, node in self.nodes.items():
            add_route(namespace, node.where.pod_subnet, node.where.address)
            identity = self.plane.identity(name, node.where.address)
            node.configure(identity, self.spec.feature_gates)
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            for started in [pool.submit(node.start) for node in self.nodes.values()]:
                started.result()
        self.api.wait_nodes_ready(list(self.nodes))

    def _describe(self) -> None:
        known = {
            "nodes": self.bed.describe(),
            "control_plane": self.plane.commands(),
            "feature_gates": dict(self.spec.feature_gates),
            "archives": [str(archive) for archive in self.spec.archives],
            "native": self.native,
        }
        (self.bed.folder / DESCRIPTION).write_text(json.dumps(known))

    def _give_up(self) -> None:
        if self.logs is not None and hasattr(self, "plane"):
            self.collect(self.logs)
            say(f"logs are in {self.logs}")
        self.down()


def wanted() -> str:
    """Which cluster that was left running is to be used: "running" for any, its name, or "" for one
    of one's own."""
    return os.environ.get("USBDRA_CLUSTER", "")


def left_running() -> list[Path]:
    """Folders of the clusters that `python -m tests.cluster up` left running."""
    return detached_beds(DESCRIPTION)


@contextlib.contextmanager
def adopted(logs: Path | None = None) -> Iterator[ClusterBed]:
    """The cluster that `wanted` names, of several; it goes on after the block.

    Raises:
        BedError: none is running, or none of this name.
    """
    names = [wanted()] if wanted() not in ("", ANY) else []
    found = named(left_running(), names)
    if not found:
        raise BedError("no cluster is running; start one with: python -m tests.cluster up --driver")
    bed = ClusterBed(logs=logs, detached=True)
    try:
        bed.adopt(found[0])
        yield bed
    finally:
        bed.down()
