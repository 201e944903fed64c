# SPDX-License-Identifier: Apache-2.0
"""Runs cells of the matrix on a bed: a claim in the cell's phase, its fault, what comes of it.

Owns the course of a cell and what is measured. The stick is in node a, the pod runs on node b.
Cells of one long fault can be run together: each phase has a claim and a stick of its own.
What a fault does is acts.py's, what must come of it table.py's.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
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
from tests.cluster.matrix.together import Together
from tests.cluster.matrix.watching import Moment, Observer, observed
from tests.cluster.space import Space

EXPORTER, IMPORTER = "a", "b"
NODES = {Side.EXPORTER: EXPORTER, Side.IMPORTER: IMPORTER, Side.CLUSTER: EXPORTER}
SECONDS = 240.0
"""How long a cell may take to recover. The longest pause between attempts is one minute."""
BOOTED_SECONDS = 600.0
"""The same where a node boots, whose pods are started by a kubelet that starts itself, and where
four claims come back at once."""
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

    def __init__(
        self, bed: ClusterBed, serial: str = "MATRIX1", seen: dict[str, Observer] | None = None
    ) -> None:
        """seen: the observers of another stage, which are shared."""
        self.bed, self.serial = bed, serial
        self.number = 0
        self._others = seen
        self._gadgets = Gadgets(bed)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self.space = Space(self.bed.api)
        self._stack.callback(self.space.remove)
        self._stack.callback(self._pull)
        self.plug()
        nodes = [self.bed.machine(name) for name in (EXPORTER, IMPORTER)]
        self.seen = self._others or self._stack.enter_context(observed(*nodes))
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

    def __init__(self, stage: Stage, cell: Cell, together: Together | None = None) -> None:
        stage.number += 1
        self.together = together
        self.stage, self.bed, self.space = stage, stage.bed, stage.space
        self.cell, self.found = cell, Found(str(cell))
        self.pod, self.claim = f"user{stage.number}", f"stick{stage.number}"
        self.seconds = BOOTED_SECONDS if together or cell.fault in _DOWN else SECONDS
        self.healed = 0.0
        self.missed = ""
        now = time.monotonic()
        self.moment = Moment(now, now)

    def run(self) -> None:
        """All of it; raises what went wrong."""
        before = look_at(self.bed.bed.nodes)
        if self.cell.fault is Fault.PULLED:
            before = but_place(before, EXPORTER, self.stage.busid)
        self.course()
        wait_clean(self.bed.bed.nodes, before, CLEAN_SECONDS)

    def course(self) -> None:
        """The same, without a look at what is left; raises what went wrong."""
        {
            Phase.IDLE: self._idle,
            Phase.PREPARING: self._preparing,
            Phase.BUSY: self._busy,
            Phase.UNPREPARING: self._unpreparing,
        }[self.cell.phase]()
        self._remove()
        if self.missed:
            raise AssertionError(self.missed)

    def lines(self) -> dict[str, list[str]]:
        """What the nodes said since the fault."""
        moment, seen = self.moment, self.stage.seen
        return {name: one.lines(moment.before, moment.begun)[-40:] for name, one in seen.items()}

    @contextlib.contextmanager
    def _fault(self) -> Iterator[None]:
        """The fault is on inside; `moment` and `healed` say from when until when."""
        node = NODES[self.cell.side]

        def act() -> AbstractContextManager[None]:
            return ACTS[self.cell.fault](self.bed, node, self.stage.stick)

        before = time.monotonic()
        with self.together.fault(act) if self.together else act():
            self.moment = Moment(before, time.monotonic())
            yield
        self.healed = time.monotonic()
        if self.cell.fault in _DOWN:
            self.stage.booted(node)

    def _idle(self) -> None:
        self._ready()
        with self._fault():
            pass
        self._start_pod()
        self._first_read()

    def _preparing(self) -> None:
        self._ready()
        self._apply()
        uid = self.space.claim(self.claim)["metadata"]["uid"]
        faults.wait_recorded(self.bed, IMPORTER, uid)
        with self._fault():
            self._note_phase(uid, "preparing")
        self._first_read()

    def _busy(self) -> None:
        self._start_pod()
        reading = Reading(self.bed, IMPORTER, self.space, self.pod)
        reading.wait()
        self._ready()
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
        if expect is not Expect.RESTART and (count := self.space.restarts(self.pod)):
            raise AssertionError(f"the container was started {count} times again")
        self._one_session()

    def _unpreparing(self) -> None:
        self._start_pod()
        Reading(self.bed, IMPORTER, self.space, self.pod).wait()
        uid = self.space.claim(self.claim)["metadata"]["uid"]
        self._ready()
        self.space.delete("pod", self.pod, "--wait=false", "--grace-period=1")
        if not self._releasing(uid):
            raise AssertionError("the claim was given back before the fault came")
        with self._fault():
            self._note_phase(uid, "releasing")
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
                seen = self.stage.seen[node]
                self.found.known[name] = self.moment.until(seen, said, self.seconds)

    def _attached_again(self) -> None:
        # the others' are attached as well, one of them perhaps before the fault was felt
        since = self.healed if self.together else self.moment.before
        at = self.stage.seen[IMPORTER].wait(
            lambda line: line == "agent device attached", since, self.seconds
        )
        self.found.link = round(max(at - self.healed, 0.0), 1)
        self.space.devices(self.claim)

    def _one_session(self) -> None:
        """At most one session a device, and no port beside it."""
        if self.together:
            return  # the others' are there too
        ports, sessions = self.stage.seen[IMPORTER].kernel(), self.stage.seen[EXPORTER].kernel()
        if (ports, sessions) != ("kernel 1 0", "kernel 0 1"):
            raise AssertionError(f"importer: {ports}; exporter: {sessions}")

    def _ready(self) -> None:
        if self.together:
            self.together.ready()

    def _note_phase(self, uid: str, phase: str) -> None:
        """Among several the slowest begins the fault: another's phase may have passed by then.

        Its claim goes its way all the same, so that the others have what they were told.
        """
        if self.together is None:
            return  # it began the fault itself, and its node may be off
        path = f"{faults.RECORDS}/{uid}.json"
        text = self.bed.machine(IMPORTER).run(["cat", path], check=False).out
        if f'"{phase}"' not in text:
            self.missed = f"the claim was no longer {phase} when the fault came: {text[:200]}"

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
    return _found(scene, scene.run)


def run_together(bed: ClusterBed, cells: Sequence[Cell]) -> list[Found]:
    """Run cells of one fault and one side, each of another phase, by one fault for all of them."""
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(Stage(bed, "TOGETHER0"))
        more = [Stage(bed, f"TOGETHER{n}", first.seen) for n in range(1, len(cells))]
        stages = [first, *map(stack.enter_context, more)]
        together = Together(len(cells))
        scenes = [Scene(on, cell, together) for on, cell in zip(stages, cells, strict=True)]
        before = look_at(bed.bed.nodes)

        def course(scene: Scene) -> Found:
            return _found(scene, scene.course)

        with ThreadPoolExecutor(len(scenes)) as pool:
            found = list(pool.map(course, scenes))
        try:
            wait_clean(bed.bed.nodes, before, CLEAN_SECONDS)
        except AssertionError as error:
            for one in found:
                one.ok, one.problem = False, f"{one.problem}\n{error}"
    return found


def _found(scene: Scene, act: Callable[[], None]) -> Found:
    found, bed = scene.found, scene.bed.bed
    found.date = time.strftime("%Y-%m-%d", time.gmtime())
    found.kernels = {name: node.release for name, node in bed.nodes.items()}
    try:
        act()
        for machine in bed.nodes.values():
            machine.vm.check()
        found.ok = True
    except Exception as error:
        if scene.together and not scene.healed:
            scene.together.give_up()
        found.problem = f"{type(error).__name__}: {error}"[:600]
        found.problem += "".join(f"\n{name}: {said}" for name, said in scene.lines().items())
    if found.recovered is not None:
        found.recovered = round(found.recovered, 1)
    return found
