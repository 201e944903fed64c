# SPDX-License-Identifier: Apache-2.0
"""The rig: a control plane, the controller, one real agent, and who spoke how much with whom.

Owns the processes and doors. etcd, API server, scheduler and controllers are Kubernetes' own, the
controller and the agent are the program as installed, each with its account's rights and a door of
its own to the API server, which counts bytes; the API server's audit log counts their requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cluster.machine import NODE as AGENT_NODE
from bench.cluster.machine import Account, Machine
from bench.scale.population import SPACE, Population, Unused
from bench.scale.requests import Audit, Request
from tests.api import chart
from tests.api.accounts import Accounts
from tests.bed.net import HOST_IP4
from tests.cluster.alone import Alone, add_node, control_plane_alone
from tests.cluster.netns import Carried, Door, socket_inside
from usbdra.kube.client import KubeClient
from usbdra.kube.custom import Contract
from usbdra.kube.types import NAMESPACE, RESOURCE_SLICE
from usbdra.kube.watch import Reflector, Synced

CONTROLLER, AGENT = "usbdra-controller", "usbdra-agent"
WANTED = frozenset(
    {"CustomResourceDefinition", "DeviceClass", "ServiceAccount", "ClusterRole"}
    | {"ClusterRoleBinding", "Role", "RoleBinding"}
)
QUIET = 1.0
"""Seconds after which nothing that was begun is still being written down."""


@dataclass(frozen=True)
class Spoken:
    """What one part said to the API server and heard from it, over some time."""

    there: int
    back: int
    requests: list[Request]


class Ear:
    """Bytes through a door and requests of an account, from now on."""

    def __init__(self, door: Door, audit: Audit, account: str) -> None:
        self._door, self._audit, self._account = door, audit, account
        self._carried, self._mark = door.carried, audit.mark()

    async def heard(self) -> Spoken:
        """Since this ear was made, when all has been written down."""
        await asyncio.sleep(QUIET)
        now: Carried = self._door.carried
        asked = [r for r in self._audit.since(self._mark) if r.user == self._account]
        there, back = now.there - self._carried.there, now.back - self._carried.back
        return Spoken(there, back, asked)


class Rig:
    """Made by `rig`; grows only. Coroutines run by `run`, in one loop."""

    def __init__(self, cluster: Alone, audit: Audit) -> None:
        self.cluster = cluster
        self.audit = audit
        self.unused = Unused()
        self._runner = asyncio.Runner()
        plane = cluster.plane
        self.controller_door = Door(cluster.folder.name, plane.target)
        inside = socket_inside(cluster.folder.name)
        inside.bind(("127.0.0.1", 0))
        inside.listen()
        self.agent_door = Door(cluster.folder.name, plane.target, inside)
        self.admin = self.run(KubeClient.connect(plane.admin_kubeconfig, timeout=60.0))
        self.population = Population(self.admin)
        self.run(self.admin.create(NAMESPACE, {"metadata": {"name": SPACE}}))
        add_node(cluster.api, AGENT_NODE, {})

    def run(self, coroutine: Any) -> Any:
        """Wait for a coroutine."""
        return self._runner.run(coroutine)

    def close(self) -> None:
        """Close doors and clients."""
        self.run(self.admin.aclose())
        self._runner.close()
        self.controller_door.close()
        self.agent_door.close()

    @property
    def kubeconfig(self) -> Path:
        """The controller's."""
        token = Accounts(self.cluster, self.cluster.folder).token(chart.NAMESPACE, CONTROLLER)
        path = self.cluster.folder / "controller.kubeconfig"
        path.write_text(self.cluster.plane.token_kubeconfig(token, self.controller_door))
        return path

    def machine(self) -> Machine:
        """A made-up machine whose agent has the DaemonSet's account, not started."""
        cluster = self.cluster
        token = Accounts(cluster, cluster.folder).token(chart.NAMESPACE, AGENT, AGENT_NODE)
        ca = cluster.plane.identity(AGENT_NODE, HOST_IP4).ca_pem.decode()
        account = Account("127.0.0.1", str(self.agent_door.port), token, ca)
        return Machine(cluster.folder.name, account)

    def ear(self, account: str) -> Ear:
        """What the controller, or the agent, says and hears from now on."""
        door = self.controller_door if account == CONTROLLER else self.agent_door
        return Ear(door, self.audit, account)

    async def forget_objects(self) -> None:
        """Delete every NodeUSBDevice, in one request, while no controller runs."""
        kind = Contract(chart.GROUP).node_device
        many = self.cluster.api.custom.delete_collection_cluster_custom_object
        await asyncio.to_thread(many, kind.group, kind.version, kind.plural)

    async def forget_agent(self) -> None:
        """Delete the slices of the agent's node, while it does not run."""
        found = await self.admin.list(RESOURCE_SLICE, fields=f"spec.nodeName={AGENT_NODE}")
        for item in found["items"]:
            await self.admin.delete(RESOURCE_SLICE, item["metadata"]["name"])

    @contextlib.contextmanager
    def observer(self) -> Iterator[Callable[[], int]]:
        """A watch of every ResourceSlice; what it was told so far, in bytes."""
        plane = self.cluster.plane
        with contextlib.closing(Door(self.cluster.folder.name, plane.target)) as door:
            path = self.cluster.folder / "observer.kubeconfig"
            admin = plane.admin_kubeconfig.read_text()
            path.write_text(re.sub(r"(https://127.0.0.1):[0-9]+", rf"\1:{door.port}", admin))
            task = self.run(self._observe(path))
            try:
                yield lambda: door.carried.back
            finally:
                task.cancel()
                self.run(asyncio.wait([task]))

    @property
    def scheduler(self) -> int:
        """Its process id."""
        return self.cluster.plane.component("kube-scheduler").pid

    async def _observe(self, kubeconfig: Path) -> asyncio.Task[None]:
        synced = asyncio.Event()

        async def follow() -> None:
            client = await KubeClient.connect(kubeconfig, timeout=60.0)
            try:
                async for change in Reflector(client, RESOURCE_SLICE).run():
                    if isinstance(change, Synced):
                        synced.set()
            finally:
                await client.aclose()

        task = asyncio.create_task(follow())
        await synced.wait()
        return task


@contextlib.contextmanager
def rig(folder: Path) -> Iterator[Rig]:
    """The control plane with the chart's kinds, classes and rights; no workloads, no policies."""
    users = [f"system:serviceaccount:{chart.NAMESPACE}:{name}" for name in (CONTROLLER, AGENT)]
    audit = Audit(folder, users)
    with control_plane_alone(apiserver_flags=audit.flags) as cluster:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": chart.NAMESPACE}}
        cluster.api.apply(space)
        wanted = [item for item in chart.manifests() if item["kind"] in WANTED]
        cluster.api.apply(wanted, namespace=chart.NAMESPACE)  # goes with the control plane
        made = Rig(cluster, audit)
        try:
            yield made
        finally:
            made.close()
