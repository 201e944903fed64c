# SPDX-License-Identifier: Apache-2.0
"""What a node with a good certificate gets from a real exporter process, by claims of a real API.

The agent's own account reads claims and nodes, with the rights of the chart and no others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from kubernetes import client

from tests.api import chart
from tests.api.accounts import Accounts
from tests.api.conftest import MakeNode
from tests.cluster.api import ClusterApi
from tests.cluster.driver import DRIVER, NAMESPACE
from tests.contract.exporting import NAME, World, driver_of, running
from tests.fakes.counted import Counted, NoPorts
from usbdra.agent import addresses
from usbdra.agent.addresses import NodeAddresses
from usbdra.agent.nodewatch import Seen
from usbdra.agent.peers import ClaimGuard
from usbdra.agent.refusals import RefusalEvents
from usbdra.agent.removed import RemovedNodes
from usbdra.agent.reporter import KubeReporter
from usbdra.errors import PeerRefused
from usbdra.kube.client import KubeClient
from usbdra.kube.types import RESOURCE_CLAIM
from usbdra.types import ClaimUid, NodeName
from usbdra.usbip.extension import ClaimRef

RIGHTS = frozenset({"ServiceAccount", "ClusterRole", "ClusterRoleBinding"})
A, B = NodeName("node-a"), NodeName("node-b")
HOLD = "example.com/hold"


@dataclass
class Cluster:
    """Node a with its exporter, and what an administrator does to claims."""

    world: World
    reading: Counted
    removed: RemovedNodes
    admin: KubeClient
    api: ClusterApi
    namespace: str

    async def claim(
        self,
        name: str,
        *,
        allocated: bool = True,
        device: str = NAME,
        pool: str = f"usb-{A}",
        node: str = B,
    ) -> ClaimRef:
        """A claim as scheduler and owner leave it."""
        request = {"name": "usb", "exactly": {"deviceClassName": "usb.example.com"}}
        made = await self.admin.create(
            RESOURCE_CLAIM,
            {
                "apiVersion": RESOURCE_CLAIM.api_version,
                "kind": RESOURCE_CLAIM.kind,
                "metadata": {"name": name, "finalizers": [HOLD]},
                "spec": {"devices": {"requests": [request]}},
            },
            self.namespace,
        )
        if allocated:
            field = {"key": "metadata.name", "operator": "In", "values": [node]}
            result = {"request": "usb", "driver": DRIVER, "pool": pool, "device": device}
            made["status"] = {
                "allocation": {
                    "devices": {"results": [result]},
                    "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
                }
            }
            await self.admin.replace(RESOURCE_CLAIM, made, self.namespace, "status")
        return ClaimRef(self.namespace, name, ClaimUid(made["metadata"]["uid"]))

    async def refused(self, claim: ClaimRef | None, error: str, who: str = "b") -> None:
        """The device is asked for, refused with this, and untouched."""
        async with self.world.link(who) as link:
            with pytest.raises(PeerRefused, match=error):
                await link.grant(NAME, claim=claim)
        assert driver_of(self.world.stick) == "usb"
        assert self.world.kernel.sockets == 0


async def sessions_stay(node: NodeName) -> None:
    """No test here removes a node that has a session."""
    raise AssertionError(f"sessions of {node} are to be ended")


@pytest_asyncio.fixture
async def cluster(
    api: ClusterApi, accounts: Accounts, make_node: MakeNode, namespace: str, tmp_path: Path
) -> AsyncIterator[Cluster]:
    for name in (A, B):
        make_node(name)
        address = {"type": "InternalIP", "address": "127.0.0.1"}
        api.core.patch_node_status(name, {"status": {"addresses": [address]}})
    with chart.installed(api, only=lambda manifest: manifest["kind"] in RIGHTS):
        agent = await accounts.client(NAMESPACE, "usbdra-agent", A)
        reading = Counted(agent)
        removed = RemovedNodes(reading, sessions_stay, NoPorts())
        nodes = NodeAddresses(reading, removed.seen)
        guard = ClaimGuard(reading, DRIVER, A, lambda name: None, same_node=nodes.require_same)
        reporter = KubeReporter(agent, DRIVER, A)
        refusals = RefusalEvents(agent, A, reporter.event)
        telling = [asyncio.create_task(one.run()) for one in (reporter, refusals)]
        async with running(
            tmp_path,
            authorise=guard.authorise,
            addresses=nodes,
            on_refused=refusals,
            ports=removed,
        ) as world:
            admin = await accounts.admin()
            yield Cluster(world, reading, removed, admin, api, namespace)
        await removed.aclose()
        for task in telling:
            task.cancel()
        for claim in (await admin.list(RESOURCE_CLAIM, namespace))["items"]:
            claim["metadata"]["finalizers"] = []
            await admin.replace(RESOURCE_CLAIM, claim, namespace)


async def test_only_the_right_claim_opens_the_device(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "usbdra.audit")
    ask, lab = cluster.refused, cluster.namespace
    await ask(None, "only for a ResourceClaim")
    await ask(ClaimRef(lab, "none", ClaimUid("u-1")), f"claim {lab}/none does not exist")
    idle = await cluster.claim("idle", allocated=False)
    await ask(idle, f"claim {lab}/idle is not allocated")
    other = await cluster.claim("other", device="usb-0000-0000-x")
    await ask(other, f"was not given device {NAME} of node node-a")
    elsewhere = await cluster.claim("elsewhere", pool="usb-node-c")
    await ask(elsewhere, f"was not given device {NAME} of node node-a")
    for_c = await cluster.claim("for-c", node="node-c")
    await ask(for_c, "was given to node node-c, not to node-b")
    right = await cluster.claim("right")
    old = ClaimRef(right.namespace, right.name, ClaimUid("11111111-2222-3333-4444-555555555555"))
    await ask(old, f"claim {lab}/right does not exist")
    away = ClaimRef("default", right.name, right.uid)
    await ask(away, "claim default/right does not exist")
    going = await cluster.claim("going")
    await cluster.admin.delete(RESOURCE_CLAIM, "going", lab)
    await ask(going, f"claim {lab}/going is being deleted")

    async with cluster.world.link() as link:
        await link.grant(NAME, claim=right)
        # The right claim of another node, and another right claim, while the device is in use.
        second = await cluster.claim("second")
        async with cluster.world.link() as other_link:
            with pytest.raises(Exception, match=f"in use by claim {lab}/right of node-b"):
                await other_link.grant(NAME, claim=second)
    await cluster.world.given_back()

    audit = [one.__dict__ for one in caplog.records if one.name == "usbdra.audit"]
    decisions = [one["decision"] for one in audit if "seconds" in one]
    assert decisions == ["refused"] * 9 + ["granted", "refused"]
    granted = next(one for one in audit if one["decision"] == "granted")
    assert (granted["node"], granted["uid"]) == (B, right.uid)


async def test_a_refusal_is_an_event_on_the_claim(cluster: Cluster) -> None:
    idle = await cluster.claim("idle", allocated=False)
    for _ in range(3):
        await cluster.refused(idle, "is not allocated")

    def about(found: list[Any]) -> list[Any] | None:
        mine = [one for one in found if one.regarding.name == "idle" and one.reason == "Refused"]
        return mine or None

    events = await asyncio.to_thread(
        cluster.api.wait,
        client.EventsV1Api(cluster.api.client).list_namespaced_event,
        about,
        "event of the refusal",
        namespace=cluster.namespace,
    )
    assert len(events) == 1
    assert events[0].note == (
        f"node node-a did not give device {NAME} to node-b: "
        f"claim {cluster.namespace}/idle is not allocated"
    )


async def test_an_attach_costs_one_read_of_the_api(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "SECONDS", 0.0)
    claim, reading = await cluster.claim("right"), cluster.reading

    async def attach() -> list[str]:
        reading.made.clear()
        async with cluster.world.link() as link:
            await link.grant(NAME, claim=claim)
            granted = list(reading.made)
        await cluster.world.given_back()
        return granted

    # A node that never had a device of ours is read, and from its first session on it is watched.
    assert (await attach())[:2] == ["get nodes/node-b", "get resourceclaims/right"]
    await reading.watching()
    assert reading.made.count("list nodes metadata.name=node-b") == 1
    for _ in range(3):
        assert await attach() == ["get resourceclaims/right"]
    # The watch knows at once what a memory of some seconds would not.
    reading.made.clear()
    cluster.api.core.delete_node(B)
    async with asyncio.timeout(10):
        while cluster.removed.seen(B) != Seen(None):
            await asyncio.sleep(0.005)
    await cluster.refused(claim, "node node-b is not in the cluster")
    assert reading.made == []


async def test_a_node_that_speaks_from_elsewhere_is_refused(cluster: Cluster) -> None:
    claim = await cluster.claim("right")
    moved = {"type": "InternalIP", "address": "10.0.0.2"}
    cluster.api.core.patch_node_status(B, {"status": {"addresses": [moved]}})
    await cluster.refused(claim, r"127\.0\.0\.1 is no InternalIP of node node-b")
    # The exporter's own certificate, towards itself: it has the address, and is no importer.
    await cluster.refused(claim, "node node-a does not import from itself", who="a")
