# SPDX-License-Identifier: Apache-2.0
"""What fault tests do to a cluster: end, freeze and order agents, stop kubelets, look at pools.

Owns the acts and the waits for their effect; what should be true after them is the tests'. Every
act that leaves a part stopped is a context manager that starts it again.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.cluster.bed import ClusterBed
from tests.cluster.claims import Object, consumer, serial, usb_claim
from tests.cluster.driver import DRIVER, NAMESPACE, ready
from tests.cluster.leftovers import AGENT
from tests.cluster.space import Space
from usbdra.plugin.acts import Step

EXPORTER = "usbdra exporter --port"
FAULT_FILE = "/run/usbdra/fault"
RECORDS = "/var/lib/usbdra/claims"
DAEMON_SET = ("daemonset/usbdra-agent", "-n", NAMESPACE)
# An emulated node needs this long for an agent's start, and a kubelet for its next try.
_SECONDS = 120
_OURS = f"spec.driver={DRIVER}"


def agent_pid(bed: ClusterBed, node: str) -> int:
    """The one agent of a node. Raises BedError when there is none or more than one."""
    return int(bed.machine(node).run(["pgrep", "-f", AGENT]).out)


def order(bed: ClusterBed, node: str, step: Step) -> None:
    """Let the node's agent end when it next comes to a step."""
    bed.machine(node).write(FAULT_FILE, step.value)


def wait_ended(bed: ClusterBed, node: str) -> None:
    """Wait until the agent has ended at the step that was ordered."""
    _wait_file(bed, node, FAULT_FILE, there=False)


@contextlib.contextmanager
def armed(bed: ClusterBed) -> Iterator[None]:
    """Agents that obey `order`, afterwards those of the chart again: both times an upgrade."""
    _set_environment(bed, f"USBDRA_FAULT_FILE={FAULT_FILE}")
    try:
        yield
    finally:
        for name in bed.nodes:
            bed.machine(name).run(["rm", "-f", FAULT_FILE])
        _set_environment(bed, "USBDRA_FAULT_FILE-")


def _set_environment(bed: ClusterBed, word: str) -> None:
    bed.api.kubectl("set", "env", *DAEMON_SET, "-c", "agent", word)
    ready(bed)
    bed.api.wait(
        bed.api.core.list_namespaced_pod,
        lambda pods: True if len(pods) == len(bed.nodes) else None,
        "the agents that were replaced are gone",
        namespace=NAMESPACE,
        label_selector="app.kubernetes.io/component=agent",
    )


@contextlib.contextmanager
def frozen(bed: ClusterBed, node: str) -> Iterator[None]:
    """An agent and its exporter that do not get to run, so that a call stays where it is."""
    machine = bed.machine(node)
    pids = [str(agent_pid(bed, node)), *machine.run(["pgrep", "-f", EXPORTER]).out.split()]
    machine.run(["kill", "-STOP", *pids])
    try:
        yield
    finally:
        machine.run(["kill", "-CONT", *pids])


@contextlib.contextmanager
def no_api_server(bed: ClusterBed) -> Iterator[None]:
    """Nobody reaches the API server meanwhile; afterwards it is ready again."""
    server = bed.plane.component("kube-apiserver")
    server.stop()
    try:
        yield
    finally:
        server.start()
        bed.plane.wait_ready()


@contextlib.contextmanager
def no_kubelet(bed: ClusterBed, node: str) -> Iterator[None]:
    """A node whose kubelet is away; its containers run on."""
    bed.nodes[node].stop_kubelet()
    try:
        yield
    finally:
        bed.nodes[node].start_kubelet()


@contextlib.contextmanager
def uninstalled(bed: ClusterBed) -> Iterator[None]:
    """The DaemonSet is gone with its pods; afterwards it is there again."""
    found = json.loads(bed.api.kubectl("get", *DAEMON_SET, "-o", "json"))
    bed.api.kubectl("delete", *DAEMON_SET, "--cascade=foreground")
    try:
        yield
    finally:
        meta = {key: found["metadata"][key] for key in ("name", "namespace", "labels")}
        bed.api.apply({**found, "metadata": meta, "status": {}}, namespace=NAMESPACE)
        ready(bed)


def wait_restarted(space: Space, pod: str) -> None:
    """Wait until a pod's container runs again, in a later life."""

    def again(pods: list[Any]) -> bool | None:
        statuses = [status for item in pods for status in item.status.container_statuses or []]
        return any(s.ready and s.restart_count for s in statuses) or None

    space.api.wait(
        space.api.core.list_namespaced_pod,
        again,
        f"{pod} runs again",
        namespace=space.name,
        field_selector=f"metadata.name={pod}",
    )


def wait_not_ready(space: Space, claim: str, reason: str) -> None:
    """Wait until the status of a claim's device says that it is not ready, and why."""

    def told(claims: list[Any]) -> bool | None:
        devices = claims[0].status.devices or [] if claims else []
        found = {(c.type, c.status, c.reason) for d in devices for c in d.conditions or []}
        return True if ("Ready", "False", reason) in found else None

    space.api.wait(
        space.api.resource.list_namespaced_resource_claim,
        told,
        f"{claim} is not ready: {reason}",
        namespace=space.name,
        field_selector=f"metadata.name={claim}",
    )


def wait_recorded(bed: ClusterBed, node: str, uid: str) -> None:
    """Wait until Prepare has put a claim on record."""
    _wait_file(bed, node, f"{RECORDS}/{uid}.json", there=True)


def wait_forgotten(bed: ClusterBed, node: str, uid: str) -> None:
    """Wait until there is no record of a claim."""
    _wait_file(bed, node, f"{RECORDS}/{uid}.json", there=False)


def _wait_file(bed: ClusterBed, node: str, path: str, *, there: bool) -> None:
    """Looks often and starts no program for it: the node has one slow CPU."""
    script = f"import os, time\nwhile os.path.exists({path!r}) is not {there}: time.sleep(0.02)"
    bed.machine(node).run(["python3", "-S", "-c", script], timeout=_SECONDS)


def slices(bed: ClusterBed) -> dict[str, Any]:
    """Our slices by name."""
    items = bed.api.resource.list_resource_slice(field_selector=_OURS).items
    return {item.metadata.name: item for item in items}


def wait_slices(bed: ClusterBed, deleted: Mapping[str, Any]) -> dict[str, Any]:
    """Wait until there are others under the names of the deleted ones, and no more; by name."""
    old = {item.metadata.uid for item in deleted.values()}

    def done(items: list[Any]) -> dict[str, Any] | None:
        new = {item.metadata.name: item for item in items if item.metadata.uid not in old}
        return new if new.keys() == deleted.keys() else None

    names, lister = ", ".join(deleted), bed.api.resource.list_resource_slice
    found: dict[str, Any] = bed.api.wait(lister, done, f"slices {names}", field_selector=_OURS)
    return found


DISK = "/dev/usbdra/usb/block0"
_READER = f"""\
n=0
while :; do
  if said=$(dd if={DISK} of=/dev/null bs=64k count=4 2>&1); then
    n=$((n + 1)); echo "read $n"
  else
    echo "failed after $n:" $said
  fi
  sleep 0.3
done
"""
READER = ("sh", "-c", _READER)
"""A container that reads its disk for ever, from the medium each time: the last close of a block
device drops what is cached of it. One line for each read."""


def wait_no_reader(bed: ClusterBed, node: str) -> None:
    """Wait until the containers with READER have ended; the API may not hear of it yet."""
    script = "while pgrep -f '[b]lock0 of=/dev/null' >/dev/null; do sleep 0.3; done"
    bed.machine(node).run(script, timeout=_SECONDS)


def disk_claim(name: str, stick: str) -> Object:
    """A claim for the stick with this serial, as a disk that the pod's user may read."""
    owner = {"uid": 1000, "gid": 1000, "mode": "0660"}
    return usb_claim(name, serial(stick), owner=owner, childNodes=["block"])


def reader(name: str, claim: str, node: str) -> Object:
    """A pod that reads its claim's disk for ever."""
    return consumer(name, claim, node=node, command=READER)


class Reading:
    """What a pod with READER tells, read on its node: works without kubelet and API server."""

    def __init__(self, bed: ClusterBed, node: str, space: Space, pod: str) -> None:
        self._machine = bed.machine(node)
        self._files = f"/var/log/pods/{space.name}_{pod}_*/main/*.log"

    def failures(self) -> list[str]:
        """Reads that failed since the pod's start."""
        return [text for text in self.lines() if not text.startswith("read ")]

    def lines(self) -> list[str]:
        """All that the pod told since its start."""
        lines = self._machine.sh(f"cat {self._files}").splitlines()
        return [line.split(" ", 3)[3] for line in lines]

    def wait(self, beginning: str = "read", timeout: float = _SECONDS) -> str:
        """The next line from now on that begins so."""
        follow = self._machine.start(f"exec tail -q -n0 -F {self._files}")
        try:
            return follow.wait_for(rf" F ({beginning}.*)", timeout)[1]
        finally:
            follow.stop()
