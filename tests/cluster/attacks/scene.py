# SPDX-License-Identifier: Apache-2.0
"""What is attacked: a stick in node a that belongs to one namespace, and where attackers stand.

Owns the stick, both namespaces and the attackers' places; the installation is the fixtures'
(conftest.py). Claims made here by hand are as scheduler and owner leave them, with no pod.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bed.host import run
from tests.bed.net import BRIDGE, HOST_IP4
from tests.bed.node import Node
from tests.cluster import assigning
from tests.cluster.attacks.attacker import Attacker, Connect
from tests.cluster.attacks.forger import Forger
from tests.cluster.bed import ClusterBed
from tests.cluster.claims import (
    Object,
    assigned_disk,
    claim,
    consumer,
    device,
    serial,
)
from tests.cluster.driver import DRIVER, GROUP
from tests.cluster.gadgets import Gadget, Gadgets
from tests.cluster.leftovers import look
from tests.cluster.netns import socket_inside
from tests.cluster.space import Space
from usbdra.types import ClaimUid
from usbdra.usbip.extension import ClaimRef

PORT = 3241
OUTSIDE = "192.168.77.200"
"""An address of the bed's network that is in none of the allowed networks."""
ADMIN_ACCESS = "resource.kubernetes.io/admin-access"
HOLD = "example.com/hold"
"""A finalizer: what has it stays in deletion."""
BY_HAND = {"usbdra-test": "by-hand"}
_RELAY = Path(__file__).with_name("relay.py")
_SECONDS = 30.0


@dataclass(frozen=True)
class State:
    """What an attack must not change: the device as the kernel has it, its medium, what the node
    holds for others."""

    kernel: dict[str, Any]
    medium: str
    held: frozenset[str]


class Scene:
    """The victim and the attackers' places. `ours` forges with the cluster's own CA, by which
    every node is whoever an attacker likes."""

    def __init__(self, bed: ClusterBed, stick: Gadget, device_name: str, ours: Forger) -> None:
        self.bed = bed
        self.stick = stick
        self.device = device_name
        self.ours = ours
        self.owner, self.other = Space(bed.api), Space(bed.api)
        self.a, self.b = bed.machine("a"), bed.machine("b")
        self.uids = {n: bed.api.core.read_node(n).metadata.uid for n in bed.nodes}
        self.as_b = ours.node("b", self.uids["b"])
        self.busid = str(self.a.call("usb.find", stick.serial)["busid"])

    def state(self) -> State:
        """As it is now."""
        kernel = self.a.call("usb.find", self.stick.serial)
        return State(kernel, self.stick.sha256(), look(self.a).held)

    def given_back(self) -> None:
        """Wait until the stick is its own node's again, with no record of a session left."""
        self.stick.at_home("disks")
        until(self.a, '[ -z "$(ls /run/usbdra/exports)" ]')

    def published(self, node: str) -> list[Any]:
        """A node's slices, by name."""
        found = self.bed.api.resource.list_resource_slice(field_selector=f"spec.driver={DRIVER}")
        mine = [one for one in found.items if one.spec.pool.name.partition("-")[2] == node]
        return sorted(mine, key=lambda one: str(one.metadata.name))

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """The device is after the block as it was before: driver, numbers, medium, no session."""
        before = self.state()
        yield
        after = self.state()
        assert after == before, f"{before} was before, {after} is now"

    @property
    def host(self) -> str:
        """The address of whoever is elsewhere."""
        return HOST_IP4

    @property
    def elsewhere(self) -> Attacker:
        """A machine of the nodes' network that is no node."""
        return Attacker(self._connect((self.a.ip, PORT)))

    @property
    def outside(self) -> Attacker:
        """A machine in none of the allowed networks."""
        return Attacker(self._connect((self.a.ip, PORT), OUTSIDE))

    @contextlib.contextmanager
    def on_b(self) -> Iterator[Attacker]:
        """Root on node b: its connections come from there."""
        source = _RELAY.read_text()
        relay = self.b.start(["python3", "-S", "-c", source, self.a.ip, str(PORT)])
        try:
            port = int(relay.wait_for(r"port (\d+)")[1])
            yield Attacker(self._connect((self.b.ip, port)))
        finally:
            relay.stop()

    def _connect(self, target: tuple[str, int], source: str = "") -> Connect:
        def connect() -> socket.socket:
            sock = socket_inside(self.bed.bed.network.name)
            try:
                sock.settimeout(_SECONDS)
                if source:
                    sock.bind((source, 0))
                sock.connect(target)
            except BaseException:
                sock.close()
                raise
            return sock

        return connect

    def allocated(
        self,
        name: str,
        *,
        space: Space | None = None,
        node: str = "b",
        pool: str = "usb-a",
        device_name: str = "",
        users: Sequence[Object] = (),
        **more: Any,
    ) -> ClaimRef:
        """A claim that was given a device, by default the victim's own; `more` is of the result.

        `users`: what it is reserved for; the control plane takes back what nobody has reserved.
        """
        space = space or self.owner
        result = {"request": "usb", "driver": DRIVER, "pool": pool}
        result |= {"device": device_name or self.device, **more}
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        status = {
            "allocation": {
                "devices": {"results": [result]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
            },
            "reservedFor": list(users),
        }
        asked = device(serial(self.stick.serial), adminAccess=bool(more.get("adminAccess")))
        return self.write(claim(name, [{"name": "usb", "exactly": asked}]), space, status)

    def given(self, name: str, pod: str, *, node: str = "b") -> ClaimRef:
        """A claim that was given the victim's device, and a pod of its own, whatever the scheduler
        would say: it only has to place it."""
        body = consumer(pod, name, node=node)
        body["spec"]["schedulingGates"] = [{"name": "attacks.example.com/claim"}]
        self.owner.apply(body)
        core = self.bed.api.core
        uid = core.read_namespaced_pod(pod, self.owner.name).metadata.uid
        ref = self.allocated(name, node=node, users=[{"resource": "pods", "name": pod, "uid": uid}])
        open_gate = [{"op": "remove", "path": "/spec/schedulingGates"}]
        core.patch_namespaced_pod(pod, self.owner.name, open_gate)
        return ref

    def write(
        self, manifest: Object, space: Space | None = None, status: Object | None = None
    ) -> ClaimRef:
        """Make a claim as an administrator can, with any status; by default of the owner."""
        space = space or self.owner
        manifest["metadata"]["labels"] = BY_HAND
        space.apply(manifest)
        name = manifest["metadata"]["name"]
        found = space.claim(name)
        if status is not None:
            body = {**found, "status": status}
            self.bed.api.resource.replace_namespaced_resource_claim_status(name, space.name, body)
        return ClaimRef(space.name, name, ClaimUid(found["metadata"]["uid"]))

    def forget(self) -> None:
        """Remove pods, and claims that were made by hand, also those that are held."""
        selector = ",".join(f"{key}={value}" for key, value in BY_HAND.items())
        free = [{"op": "replace", "path": "/metadata/finalizers", "value": []}]
        api = self.bed.api
        for space in (self.owner, self.other):
            here = f"--namespace={space.name}"
            api.kubectl("delete", "pods", "--all", here, "--grace-period=1")
            lister = api.resource.list_namespaced_resource_claim
            for one in lister(space.name, label_selector=selector).items:
                if HOLD in (one.metadata.finalizers or ()):
                    api.resource.patch_namespaced_resource_claim(
                        one.metadata.name, space.name, free
                    )
            api.kubectl("delete", "resourceclaims", here, "-l", selector)

    def disk_claim(self, name: str) -> Object:
        """The owner's own claim for the stick, as a disk that its pod's user may read."""
        return assigned_disk(name, self.stick.serial, self.owner.name)


@contextlib.contextmanager
def staged(bed: ClusterBed, ours: Forger) -> Iterator[Scene]:
    """The scene, set up and cleared away again."""
    gadgets = Gadgets(bed)
    network = bed.bed.network.name
    outside = [f"{OUTSIDE}/24", "dev", BRIDGE]
    run(["ip", "-n", network, "address", "replace", *outside])
    try:
        stick = gadgets.plug("a", "VICTIM1", size_mib=4)
        stick.fill()
        scene = Scene(bed, stick, str(gadgets.published("VICTIM1")["device"]), ours)
        try:
            label = f"{ADMIN_ACCESS}=true"
            bed.api.kubectl("label", "namespace", scene.owner.name, label)
            assign(bed, scene.device, scene.owner.name)
            yield scene
        finally:
            for space in (scene.owner, scene.other):
                space.remove()
            assign(bed, scene.device, "")
    finally:
        gadgets.remove_all()
        run(["ip", "-n", network, "address", "delete", *outside])


def assign(bed: ClusterBed, device_name: str, namespace: str) -> None:
    """As an administrator does; returns when the scheduler and the node's agent know."""
    api = bed.api
    assigning.assign(bed, device_name, namespace)
    wanted = namespace or None

    def find(slices: list[Any]) -> bool | None:
        devices = [d for item in slices for d in item.spec.devices or () if d.name == device_name]
        return True if any(_owner(d) == wanted for d in devices) else None

    api.wait(api.resource.list_resource_slice, find, f"{device_name} is {namespace or 'no one'}'s")


def _owner(published: Any) -> str | None:
    """The namespace that a published device's taints keep it for."""
    key = f"{GROUP}/assigned"
    return next((taint.value for taint in published.taints or () if taint.key == key), None)


def until(machine: Node, condition: str, seconds: int = 60) -> None:
    """Wait on the node for a shell condition."""
    script = f"for i in $(seq {seconds * 5}); do {condition} && exit 0; sleep 0.2; done; exit 1"
    machine.sh(script, timeout=seconds + 30)
