# SPDX-License-Identifier: Apache-2.0
"""A test bed: some nodes on a private network, made by one call and gone after one block.

Owns the life of a bed: instance folder, network, machines, and the sweep of beds whose owner
was killed. Must not contain tests.
"""

import json
import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.bed.accel import accelerator
from tests.bed.host import need_root
from tests.bed.initrd import initrd
from tests.bed.instance import INSTANCES, PREFIX, hold, remove, sweep
from tests.bed.kernels import stock_kernel
from tests.bed.net import Network, address4, address6
from tests.bed.node import Node
from tests.bed.progress import step
from tests.bed.rootfs import RootSpec, node_image
from tests.bed.vm import Drive, Machine, Vm

DEFAULT_MODULES = ("usbip-core", "usbip-host", "vhci-hcd", "tls", "dummy_hcd", "libcomposite")
# drivers of emulated parts that no test uses; their probing is a third of the boot
UNUSED = "kvm_amd,kvm_intel,psmouse,iTCO_wdt,i2c_i801,lpc_ich,ahci,powernow_k8,acpi_cpufreq"
# tells of a bed that was left running, in its folder
DESCRIPTION = "bed.json"
# controllers that gadgets are made on, each with a hub for 480 Mbit/s and one for 5 Gbit/s
GADGET_CONTROLLERS = 6


@dataclass(frozen=True)
class NodeSpec:
    """One node to make. Memory in MiB; drives are (serial, image, folder in the node).

    Of each image in copies the node gets a copy of its own to write, mounted by nobody.
    parameters go on the kernel's command line, those of modules included (MODULE.NAME=VALUE).
    """

    name: str
    kernel: str = "6.12"
    root: RootSpec = field(default_factory=RootSpec)
    memory: int = 768
    cpus: int = 1
    drives: tuple[tuple[str, Path, str], ...] = ()
    copies: tuple[Path, ...] = ()
    modules: tuple[str, ...] = DEFAULT_MODULES
    parameters: tuple[str, ...] = ()


class Bed:
    """Nodes on a network. Use as a context manager, from a thread that outlives it."""

    def __init__(self, specs: Sequence[NodeSpec], *, detached: bool = False) -> None:
        self.specs = list(specs)
        self.detached = detached
        self.nodes: dict[str, Node] = {}
        self.boot_seconds: dict[str, float] = {}
        self.folder = Path()
        self.network = Network("")
        self._lock = -1

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def up(self) -> None:
        """Make everything and wait until every node answers; on failure nothing is left."""
        need_root()
        sweep()
        machines = [self._machine(i, spec) for i, spec in enumerate(self.specs)]
        name = PREFIX + secrets.token_hex(3)
        self.folder = INSTANCES / name
        self.folder.mkdir()
        self._lock = hold(self.folder)
        self.network = Network(name)
        try:
            with step(f"booting {', '.join(f'{s.name} ({s.kernel})' for s in self.specs)}"):
                self._boot(machines)
        except BaseException:
            self.down()
            raise

    def _boot(self, machines: list[tuple[Machine, str]]) -> None:
        self.network.up()
        start = time.monotonic()
        for i, (machine, release) in enumerate(machines):
            placed = replace(machine, folder=self.folder / machine.name)
            keep = (self._lock,) if self.detached else ()
            vm = Vm(placed, self.network, detached=self.detached, keep_fds=keep)
            self.nodes[machine.name] = Node(vm, release, address4(i), address6(i))
            vm.start()
        for name, node in self.nodes.items():
            node.wait_ready()
            self.boot_seconds[name] = round(time.monotonic() - start, 1)

    def _machine(self, index: int, spec: NodeSpec) -> tuple[Machine, str]:
        """The machine of a spec, its images made; the folder is set at start."""
        kernel = stock_kernel(spec.kernel)
        drives = (("modules", kernel.modules_image, "/lib/modules"), *spec.drives)
        hosts = ",".join(f"{address4(i)}={s.name}" for i, s in enumerate(self.specs))
        parameters = {
            "name": spec.name,
            "ip4": f"{address4(index)}/24",
            "ip6": f"{address6(index)}/64",
            "hosts": hosts,
            "mounts": ",".join(f"{serial}:{folder}" for serial, _, folder in drives),
            "modules": ",".join(spec.modules),
        }
        append = [f"bed.{key}={value}" for key, value in parameters.items()]
        append += [f"modprobe.blacklist={UNUSED}", f"dummy_hcd.num={GADGET_CONTROLLERS}"]
        append += ["dummy_hcd.is_super_speed=1", *spec.parameters]
        machine = Machine(
            name=spec.name,
            folder=Path(),
            kernel=kernel.image,
            initrd=initrd(kernel),
            append=" ".join(append),
            root=node_image(spec.root),
            accelerator=accelerator(kernel),
            mac=f"52:54:00:77:00:{10 + index:02x}",
            memory=spec.memory,
            cpus=spec.cpus,
            drives=tuple(Drive(serial, image) for serial, image, _ in drives),
            copies=spec.copies,
        )
        return machine, kernel.release

    def cut(self, name: str) -> None:
        """Lose all packets of a node, silently."""
        self.network.cut(name)

    def restore(self, name: str) -> None:
        """End a cut."""
        self.network.restore(name)

    def down(self) -> None:
        """End machines, network and files; goes on when a part fails."""
        for node in self.nodes.values():
            node.close()
            node.vm.close()
        self.nodes.clear()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
            remove(self.folder)

    def save_logs(self, target: Path) -> None:
        """Copy console logs where they outlive the bed."""
        target.mkdir(parents=True, exist_ok=True)
        for name, node in self.nodes.items():
            (target / f"{name}-console.log").write_text(node.vm.log())

    def describe(self) -> dict[str, Any]:
        """Plain values from which `from_description` makes this bed again in another process."""
        return {
            name: {
                "ip": node.ip,
                "ip6": node.ip6,
                "release": node.release,
                "machine": node.vm.machine.to_json(),
            }
            for name, node in self.nodes.items()
        }

    @property
    def lock_fds(self) -> tuple[int, ...]:
        """What a detached process has to hold open: the bed counts as alive for as long."""
        return (self._lock,) if self._lock >= 0 else ()


def from_description(folder: Path, nodes: dict[str, Any]) -> Bed:
    """A detached bed that still runs; `down` of it only lets go."""
    bed = Bed([], detached=True)
    bed.folder, bed.network = folder, Network(folder.name, nodes)
    for name, facts in nodes.items():
        vm = Vm(Machine.from_json(facts["machine"]), bed.network, detached=True)
        bed.nodes[name] = Node(vm, facts["release"], facts["ip"], facts["ip6"])
    return bed


def leave_running(bed: Bed) -> None:
    """Let other processes `adopt` a detached bed."""
    (bed.folder / DESCRIPTION).write_text(json.dumps(bed.describe()))


def adopt(folder: Path) -> Bed:
    """The bed that `python -m tests.bed up` left running."""
    return from_description(folder, json.loads((folder / DESCRIPTION).read_text()))
