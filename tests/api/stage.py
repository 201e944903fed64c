# SPDX-License-Identifier: Apache-2.0
"""What happens around the commands of a documented page: nodes, their agents and kubelets.

Owns the stand-ins. What agents say is made by the product's own functions; pods never start.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kubernetes import client

from tests.api.conftest import MakeNode
from tests.api.devices import PublishingNode, has, until
from tests.api.test_controller_devices import CONTRACT, NUSB, STICK, reserved
from tests.cluster.api import ClusterApi
from tests.unit.slices.samples import offer
from usbdra.agent.linkrates import Numbers
from usbdra.agent.nodeobjects import NodeObjects
from usbdra.agent.reporter import KubeReporter
from usbdra.agent.resets import Resets
from usbdra.kube.client import KubeClient
from usbdra.kube.types import POD, RESOURCE_CLAIM
from usbdra.kube.watch import Reflector
from usbdra.locks import ProcessLock
from usbdra.plugin.status import device_statuses
from usbdra.slices.build import Visibility
from usbdra.state.claims import (
    ClaimRecord,
    ClaimRef,
    DeviceNode,
    DeviceRecord,
    Held,
    Identity,
    Phase,
    Route,
)
from usbdra.state.resets import ResetSchema
from usbdra.state.store import RecordStore
from usbdra.types import BusId, ClaimUid, DeviceName, NodeName, PortId

SPACE = "lab"
HELD = Held(
    BusId("2-1"), 2, 2, DeviceNode("/dev/bus/usb/002/002", 189, 129),
    Identity("0951", "1666", "60A44C413FAE"), port=PortId(0),
)  # fmt: skip


class Stage:
    """Two nodes; the stick is plugged into node-a."""

    def __init__(
        self, api: ClusterApi, admin: KubeClient, make_node: MakeNode, folder: Path
    ) -> None:
        self._core = api.core
        self._admin = admin
        self._folder = folder
        nodes = ("node-a", "node-b")
        label = {f"{CONTRACT.group}/usbip": "true"}
        self._nodes = [
            PublishingNode(admin, make_node(name, label), Visibility.CLUSTER) for name in nodes
        ]
        self._reporter = KubeReporter(admin, CONTRACT.driver, NodeName("node-b"))
        self.steps: dict[str, Callable[[], Awaitable[object]]] = {
            "plugged": self.plugged,
            "pulled": self.pulled,
            "assigned": self.assigned,
            "the pod is placed": self.placed,
            "the node attaches the device": self.attached,
            "the link is measured": self.measured,
            "the link is lost": self.lost,
            "the link is back": self.attached,
            "the scheduler has tried second": self.tried,
            "the pods have ended": self.ended,
            "a pod uses it": self.used,
        }

    async def run(self) -> None:
        """Be the kubelets and node-a's agent until cancelled."""
        store = RecordStore(self._folder / "resets", ResetSchema())
        lock = ProcessLock(self._folder / "resets.lock")

        async def act(name: DeviceName, force: bool) -> None:
            """A device that comes back at once."""

        async with asyncio.TaskGroup() as group:
            node = NodeName("node-a")
            objects = NodeObjects(self._admin, CONTRACT, node)
            resets = Resets(self._admin, objects, CONTRACT, node, store, lock, act)
            group.create_task(resets.run())
            group.create_task(objects.run())
            group.create_task(self._end_pods())

    async def _end_pods(self) -> None:
        """What a kubelet does with a pod that is deleted."""
        async for event in Reflector(self._admin, POD, SPACE).run():
            item = getattr(event, "new", None)
            if item is not None and item["metadata"].get("deletionTimestamp"):
                with contextlib.suppress(client.ApiException):  # gone by itself
                    await asyncio.to_thread(
                        self._core.delete_namespaced_pod,
                        item["metadata"]["name"], SPACE, grace_period_seconds=0,
                    )  # fmt: skip

    async def plugged(self) -> None:
        for node, offers in zip(self._nodes, ([offer()], []), strict=True):
            await node.publish(*offers)
        await until(self._admin, NUSB, STICK, has("Ready", "Ready"))

    async def pulled(self) -> None:
        await self._nodes[0].publish()
        await until(self._admin, NUSB, STICK, has("Ready", "NotFound"))

    async def assigned(self) -> None:
        await self.plugged()
        await self._admin.merge(NUSB, STICK, {"spec": {"assignedNamespace": SPACE}})
        await until(self._admin, NUSB, STICK, has("Assigned", "Assigned"))

    async def placed(self) -> None:
        await until(self._admin, RESOURCE_CLAIM, STICK, reserved, SPACE)

    async def attached(self) -> None:
        await self._report()
        await until(self._admin, NUSB, STICK, has("Attached", "AttachedToPod"))

    async def measured(self) -> None:
        now = datetime.now(UTC)
        link = Numbers(sent=512_000, received=31_400_000, rtt=1180, retransmits=0, seconds=60)
        await self._report(link=link.data(now))

    async def lost(self) -> None:
        await self._report(missing=True)
        await until(self._admin, NUSB, STICK, has("Attached", "LinkLost"))

    async def tried(self) -> None:
        await until(self._admin, POD, "second", has("PodScheduled", "Unschedulable"), SPACE)

    async def ended(self) -> None:
        await until(self._admin, NUSB, STICK, has("Attached", "Available"))

    async def used(self) -> None:
        await until(self._admin, RESOURCE_CLAIM, STICK, bool, SPACE)
        claim = {"name": "stick", "resourceClaimName": STICK}
        container = {"name": "main", "image": "none"}
        spec = {
            "nodeSelector": {"kubernetes.io/hostname": "node-b"},
            "containers": [{**container, "resources": {"claims": [{"name": "stick"}]}}],
            "resourceClaims": [claim],
        }
        await self._admin.create(POD, {"metadata": {"name": "reader"}, "spec": spec}, SPACE)
        await self.placed()
        await self.attached()
        await self.measured()

    async def _report(self, *, missing: bool = False, link: dict[str, Any] | None = None) -> None:
        """As node-b's agent says it of the claim."""
        claim = await self._admin.get(RESOURCE_CLAIM, STICK, SPACE)
        results = claim["status"]["allocation"]["devices"]["results"]
        found = next(r for r in results if r["device"] == STICK)
        device = DeviceRecord(
            found["request"], found["pool"], found["device"], DeviceName(STICK),
            NodeName("node-a"), Route.VHCI, held=replace(HELD),
        )  # fmt: skip
        ref = ClaimRef(SPACE, STICK, ClaimUid(claim["metadata"]["uid"]))
        record = ClaimRecord(ref, Phase.PREPARED, "boot", (device,))
        lost = {device.key} if missing else set()
        (entry,) = device_statuses(record, datetime.now(UTC), lost)
        if link is not None:
            entry["data"]["link"] = link
        await self._reporter.prepared(record, [entry])
        await self._reporter.flushed()
