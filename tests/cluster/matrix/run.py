# SPDX-License-Identifier: Apache-2.0
"""Runs cells of the matrix on a bed: a claim in the cell's phase, its fault, what comes of it.

Owns the course of a cell and what is measured. The stick is in node a, the pod runs on node b.
What a fault does is acts.py's, what must come of it table.py's.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from tests.bed.errors import BedError
from tests.cluster import faults
from tests.cluster.bed import ClusterBed
from tests.cluster.faults import Reading, disk_claim, reader
from tests.cluster.gadgets import Gadgets
from tests.cluster.leftovers import but_place, look_at, wait_clean
from tests.cluster.matrix.acts import ACTS
from tests.cluster.matrix.table import Cell, Expect, Fault, Phase, Side, expected
from tests.cluster.matrix.watching import Observer, observed
from tests.cluster.space import Space

EXPORTER, IMPORTER = "a", "b"
NODES = {Side.EXPORTER: EXPORTER, Side.IMPORTER: IMPORTER, Side.CLUSTER: EXPORTER}
SECONDS = 240.0
"""How long a cell may take to recover. The longest pause between attempts is one minute."""
BOOTED_SECONDS = 600.0
"""The same where a node boots: its pods are started by a kubelet that starts itself."""
CLEAN_SECONDS = 90.0
_LOOP_SECONDS = 100
_DOWN = (Fault.POWER, Fault.REBOOT)


@dataclass
class Found:
    """What came of one cell.

    Attributes:
        ok: whether it is what table.py says.
        problem: what was otherwise.
        known: seconds from the fault until a side's kernel had ended the link, until its agent
            logged it: `importer.kernel`, `importer.agent`, `exporter.kernel`, `exporter.agent`.
        link: seconds from the end of the cause until the device was attached again.
        recovered: seconds from the end of the cause until the pod's next read, a new pod's first
            read, or the device's return to its own driver.
        failed_reads: reads of the pod that ended with an error.
        kernels, date: where and when it was run.
    """

    cell: str
    ok: bool = False
    problem: str = ""
    known: dict[str, float] = field(default_factory=dict)
    link: float | None = None
    recovered: float | None = None
    failed_reads: int = 0
    kernels: dict[str, str] = field(default_factory=dict)
    date: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


class Stage:
    """What cells use one after another: the stick in node a, a namespace, an observer a node."""

    serial = "MATRIX1"

    def __init__(self, bed: ClusterBed) -> None:
        self.bed = bed
        self.number = 0
        self._gadgets = Gadgets(bed)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self.space = Space(self.bed.api)
        self._stack.callback(self.space.remove)
        self._stack.callback(self._pull)
        self.plug()
        nodes = [self.bed.machine(name) for name in (EXPORTER, IMPORTER)]
        self.seen = self._stack.enter_context(observed(*nodes))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def plug(self) -> None:
        """Plug the stick in, for the first time or after its node booted; one that a run which
        was killed has left is pulled out before."""
        self.bed.machine(EXPORTER).call("gadget.remove", self.serial)
        self.stick = self._gadgets.plug(EXPORTER, self.serial)
        self.busid: str = self.stick.at_home("disks")["busid"]

    def booted(self, node: str) -> None:
        """A node that was off has neither an observer nor a stick any more."""
        self.seen[node].stop()
        self.seen[node] = Observer(self.bed.machine(node))
        if node == EXPORTER:
            self.plug()

    def _pull(self) -> None:
        with contextlib.suppress(BedError):  # a node that booted has no gadget
            self._gadgets.remove_all()


class Scene:
    """One cell on its way."""

    def __init__(self, stage: Stage, cell: Cell) -> None:
        stage.number += 1
        self.stage, self.bed, self.space = stage, stage.bed, stage.space
        self.cell, self.found = cell, Found(str(cell))
        self.pod, self.claim = f"user{stage.number}", f"stick{stage.number}"
        self.seconds = BOOTED_SECONDS if cell.fault in _DOWN else SECONDS
        self.healed = 0.0
        self.begun = time.monotonic()

    def run(self) -> None:
        """All of it; raises what went wrong."""
        before = look_at(self.bed.bed.nodes)
        if self.cell.fault is Fault.PULLED:
            before = but_place(before, EXPORTER, self.stage.busid)
        {
            Phase.IDLE: self._idle,
            Phase.PREPARING: self._preparing,
            Phase.BUSY: self._busy,
            Phase.UNPREPARING: self._unpreparing,
        }[self.cell.phase]()
        self._remove()
        wait_clean(self.bed.bed.nodes, before, CLEAN_SECONDS)

    def lines(self) -> dict[str, list[str]]:
        """What the nodes said since the fault."""
        return {name: one.lines(self.begun)[-40:] for name, one in self.stage.seen.items()}

    @contextlib.contextmanager
    def _fault(self) -> Iterator[None]:
        """The fault is on inside; `begun` and `healed` say from when until when."""
        node = NODES[self.cell.side]
        self.begun = time.monotonic()
        with ACTS[self.cell.fault](self.bed, node, self.stage.stick):
            yield
        self.healed = time.monotonic()
        if self.cell.fault in _DOWN:
            self.stage.booted(node)

    def _idle(self) -> None:
        with self._fault():
            pass
        self._start_pod()
        self._first_read()

    def _preparing(self) -> None:
        self._apply()
        uid = self.space.claim(self.claim)["metadata"]["uid"]
        faults.wait_recorded(self.bed, IMPORTER, uid)
        with self._fault():
            pass
        self._first_read()

    def _busy(self) -> None:
        self._start_pod()
        reading = Reading(self.bed, IMPORTER, self.space, self.pod)
        reading.wait()
        expect = expected(self.cell)
        with self._fault():
            pass
        if expect is Expect.RESTART:
            faults.wait_restarted(self.space, self.pod)
        if expect is not Expect.NOTHING:
            self._known()
            self._attached_again()
        reading.wait(timeout=self.seconds)
        self.found.recovered = time.monotonic() - self.healed
        self.found.failed_reads = len(reading.failures())
        if expect is Expect.NOTHING and self.found.failed_reads:
            raise AssertionError(f"reads failed: {reading.failures()[:3]}")
        if expect is not Expect.RESTART and (count := self._restarts()):
            raise AssertionError(f"the container was started {count} times again")
        self._one_session()

    def _unpreparing(self) -> None:
        self._start_pod()
        Reading(self.bed, IMPORTER, self.space, self.pod).wait()
        uid = self.space.claim(self.claim)["metadata"]["uid"]
        self.space.delete("pod", self.pod, "--wait=false", "--grace-period=1")
        if not self._releasing(uid):
            raise AssertionError("the claim was given back before the fault came")
        with self._fault():
            pass
        self.bed.api.wait_pod_gone(self.pod, self.space.name, self.seconds)
        self._at_home()
        self.found.recovered = time.monotonic() - self.healed

    def _apply(self) -> None:
        pod = reader(self.pod, self.claim, IMPORTER)
        pod["spec"]["restartPolicy"] = "Always"
        pod["spec"]["tolerations"] = [{"operator": "Exists"}]  # what a taint does is another test's
        self.space.apply(disk_claim(self.claim, self.stage.serial), pod)

    def _start_pod(self) -> None:
        self._apply()
        self.bed.api.wait_pod(self.pod, self.space.name, timeout=self.seconds)

    def _first_read(self) -> None:
        self.bed.api.wait_pod(self.pod, self.space.name, timeout=self.seconds)
        Reading(self.bed, IMPORTER, self.space, self.pod).wait(timeout=self.seconds)
        self.found.recovered = time.monotonic() - self.healed
        self._one_session()

    def _known(self) -> None:
        """When each end knew. A node whose power was off knows nothing of before."""
        wanted: dict[str, tuple[str, Callable[[str], bool]]] = {
            "importer.kernel": (IMPORTER, lambda line: line.startswith("kernel 0 ")),
            "importer.agent": (IMPORTER, lambda line: line == "agent device lost"),
            "exporter.kernel": (EXPORTER, lambda line: _ends(line, " 0")),
            "exporter.agent": (EXPORTER, lambda line: line in _ENDED),
        }
        off = NODES[self.cell.side] if self.cell.fault in _DOWN else ""
        for name, (node, said) in wanted.items():
            if node != off:
                at = self.stage.seen[node].wait(said, self.begun, self.seconds)
                self.found.known[name] = round(at - self.begun, 1)

    def _attached_again(self) -> None:
        at = self.stage.seen[IMPORTER].wait(
            lambda line: line == "agent device attached", self.begun, self.seconds
        )
        self.found.link = round(max(at - self.healed, 0.0), 1)
        self.space.devices(self.claim)

    def _restarts(self) -> int:
        pod = self.bed.api.core.read_namespaced_pod(self.pod, self.space.name)
        return sum(status.restart_count for status in pod.status.container_statuses)

    def _one_session(self) -> None:
        """At most one session a device, and no port beside it."""
        ports, sessions = self.stage.seen[IMPORTER].kernel(), self.stage.seen[EXPORTER].kernel()
        if (ports, sessions) != ("kernel 1 0", "kernel 0 1"):
            raise AssertionError(f"importer: {ports}; exporter: {sessions}")

    def _releasing(self, uid: str) -> bool:
        """Wait until the claim is being given back; False when it has been."""
        path = f"{faults.RECORDS}/{uid}.json"
        script = (
            "import sys, time\n"
            f"end = time.monotonic() + {_LOOP_SECONDS}\n"
            "while time.monotonic() < end:\n"
            "    try:\n"
            f"        text = open({path!r}).read()\n"
            "    except OSError:\n"
            "        sys.exit(1)\n"
            "    if 'releasing' in text:\n"
            "        sys.exit(0)\n"
            "    time.sleep(0.005)\n"
            "sys.exit(2)\n"
        )
        command = ["python3", "-S", "-c", script]
        done = self.bed.machine(IMPORTER).run(command, timeout=_LOOP_SECONDS + 10, check=False)
        return done.rc == 0

    def _remove(self) -> None:
        if self.cell.phase is not Phase.UNPREPARING:
            self.space.delete("pod", self.pod, "--grace-period=1")
            self._at_home()
        self.space.delete("resourceclaim", self.claim)

    def _at_home(self) -> None:
        """The device is its node's own again, with its driver."""
        deadline = time.monotonic() + self.seconds
        while True:
            try:
                self.stage.stick.at_home("disks")
            except Exception:
                if time.monotonic() > deadline:
                    raise
                continue
            return


_ENDED = ("agent session ended", "agent session is ended", "agent device was unplugged")


def _ends(line: str, text: str) -> bool:
    return line.startswith("kernel") and line.endswith(text)


def run(stage: Stage, cell: Cell) -> Found:
    """Run one cell; what came of it, also when it went wrong: the stage is then not used again."""
    scene = Scene(stage, cell)
    found = scene.found
    found.date = time.strftime("%Y-%m-%d", time.gmtime())
    found.kernels = {name: node.release for name, node in stage.bed.bed.nodes.items()}
    try:
        scene.run()
        for machine in stage.bed.bed.nodes.values():
            machine.vm.check()
        found.ok = True
    except Exception as error:
        found.problem = f"{type(error).__name__}: {error}"[:600]
        found.problem += "".join(f"\n{name}: {said}" for name, said in scene.lines().items())
    if found.recovered is not None:
        found.recovered = round(found.recovered, 1)
    return found
