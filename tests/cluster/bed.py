# SPDX-License-Identifier: Apache-2.0
"""The cluster bed: one call makes a Kubernetes cluster of real parts, one block later it is gone.

Owns how machines, control plane and nodes are put together. Each part lives in a module of its
own; nothing here knows of usbdra.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.bed.bed import DEFAULT_MODULES, Bed, NodeSpec
from tests.bed.clusterbin import cluster_binary
from tests.bed.images import overlay
from tests.bed.instance import INSTANCES, PREFIX, hold, remove
from tests.bed.net import HOST_IP4
from tests.bed.node import Node
from tests.bed.progress import say, step
from tests.bed.rootfs import RootSpec
from tests.cluster.api import ClusterApi
from tests.cluster.controlplane import ControlPlane
from tests.cluster.netns import add_route, enable_forwarding
from tests.cluster.node import KubeNode, NodeAddress
from tests.cluster.payload import MOUNT, PACKAGES, payload_image
from tests.cluster.runtime_disk import runtime_disk


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
    """

    kernels: Mapping[str, str] = field(default_factory=lambda: {"a": "6.12", "b": "6.1"})
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    archives: Sequence[Path] = ()
    packages: tuple[str, ...] = ()
    modules: tuple[str, ...] = DEFAULT_MODULES
    memory: int = 2048


class ClusterBed:
    """A control plane on this host and nodes in virtual machines, on a private network.

    Use as a context manager, from a thread that outlives it. When the block ends by an exception
    all logs are copied to `logs` first.
    """

    def __init__(self, spec: ClusterSpec | None = None, logs: Path | None = None) -> None:
        self.spec = spec or ClusterSpec()
        self.logs = logs
        self.nodes: dict[str, KubeNode] = {}
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
        """The machine of a node: run commands in it, plug USB devices, pull its power."""
        return self.bed[name]

    def up(self) -> None:
        """Make everything; returns with every node Ready and its images imported."""
        spec = self.spec
        binary = cluster_binary()
        payload, data = payload_image(), runtime_disk(spec.archives)
        root = RootSpec(packages=(*PACKAGES, *spec.packages))
        disks = self._stack.enter_context(_instance_folder())
        machines = [
            NodeSpec(
                name,
                kernel=kernel,
                root=root,
                memory=spec.memory,
                drives=(("cluster", payload, MOUNT),),
                modules=spec.modules,
                extra_qemu=_writable_drive(data, disks / f"{name}.qcow2"),
            )
            for name, kernel in spec.kernels.items()
        ]
        self.bed = self._stack.enter_context(Bed(machines))
        namespace, folder = self.bed.network.name, self.bed.folder / "control-plane"
        folder.mkdir()
        with step("starting the control plane"):
            self.plane = self._stack.enter_context(
                ControlPlane(binary, namespace, folder, HOST_IP4, spec.feature_gates)
            )
        self.api = ClusterApi(self.plane.admin_kubeconfig, (str(binary), "kubectl"))
        self._stack.callback(self.api.close)
        with step("starting containerd and the kubelet on every node"):
            self._join(namespace)

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

    def _join(self, namespace: str) -> None:
        enable_forwarding(namespace)
        for index, name in enumerate(self.spec.kernels):
            machine = self.bed[name]
            where = NodeAddress(machine.ip, HOST_IP4, f"10.244.{index}.0/24")
            add_route(namespace, where.pod_subnet, where.address)
            identity = self.plane.identity(name, machine.ip)
            self.nodes[name] = KubeNode(machine, where, identity, self.spec.feature_gates)
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            for started in [pool.submit(node.start) for node in self.nodes.values()]:
                started.result()
        self.api.wait_nodes_ready(list(self.nodes))

    def _give_up(self) -> None:
        if self.logs is not None and hasattr(self, "plane"):
            self.collect(self.logs)
            say(f"logs are in {self.logs}")
        self.down()


@contextlib.contextmanager
def _instance_folder() -> Iterator[Path]:
    """A folder for this run's disks; `tests.bed` sweeps it when its owner was killed."""
    folder = INSTANCES / f"{PREFIX}disks-{secrets.token_hex(3)}"
    folder.mkdir()
    lock = hold(folder)
    try:
        yield folder
    finally:
        os.close(lock)
        remove(folder)


def _writable_drive(base: Path, disk: Path) -> tuple[str, ...]:
    """QEMU's arguments for a node's own copy of a disk."""
    overlay(base, disk)
    drive = f"file={disk},if=none,id={disk.stem}-data,format=qcow2,cache=unsafe"
    return ("-drive", drive, "-device", f"virtio-blk-pci,drive={disk.stem}-data")
