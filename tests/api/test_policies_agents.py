# SPDX-License-Identifier: Apache-2.0
"""What an agent may write: its own node's slices, status and label. Real tokens, real API server.

The accounts get more rights here than the chart gives them where a right of its own would hide
what the policy does.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from tests.api.accounts import Accounts
from tests.api.chart import GROUP, NAMESPACE
from tests.api.conftest import MakeNode
from tests.api.policies import DRIVER, claim, policies, usb
from tests.cluster.api import ClusterApi
from tests.unit.slices.samples import offer
from usbdra.kube import errors
from usbdra.kube.client import KubeClient
from usbdra.kube.types import NODE, RESOURCE_CLAIM, RESOURCE_SLICE, Object
from usbdra.slices.build import SliceOptions, Visibility, build
from usbdra.types import Hub

KEY = f"{GROUP}/usbip"
WIDE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "wide"},
    "rules": [
        {"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["*"]},
        {"apiGroups": ["resource.k8s.io"], "resources": ["*"], "verbs": ["*"]},
    ],
}


@pytest.fixture(scope="module", autouse=True)
def in_force(api: ClusterApi) -> Iterator[None]:
    with policies(api):
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "wide"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "wide",
            },
            "subjects": [
                {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
                for name in ("usbdra-agent", "usbdra-node-setup")
            ],
        }  # fmt: skip
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "usbdra-node-setup", "namespace": NAMESPACE},
        }
        api.apply([WIDE, binding, account], namespace=NAMESPACE)
        yield
        api.delete([WIDE, binding, account], namespace=NAMESPACE)


def slices(node: str, **changes: Any) -> list[Object]:
    """What the agent of a node publishes: a shared pool, a local one, one of links."""
    offers = [offer(name="usb-1", exportable=True), offer(name="usb-2", busid="1-2")]
    return build(offers, {Hub.HIGH: 8}, SliceOptions(node=node, group=GROUP, **changes))


async def agent(accounts: Accounts, node: str | None) -> KubeClient:
    return await accounts.client(NAMESPACE, "usbdra-agent", node)


async def test_an_agent_writes_all_slices_of_its_own_node(
    accounts: Accounts, make_node: MakeNode
) -> None:
    node = make_node()
    client = await agent(accounts, node)
    for visibility in Visibility:
        wanted = slices(node, visibility=visibility)
        assert {item["spec"]["pool"]["name"] for item in wanted} <= {
            f"usb-{node}", f"usblink-{node}", f"usblocal-{node}",
        }  # fmt: skip
        for item in wanted:
            made = await client.create(RESOURCE_SLICE, item)
            made["spec"]["pool"]["generation"] += 1
            await client.replace(RESOURCE_SLICE, made)
            await client.delete(RESOURCE_SLICE, item["metadata"]["name"])


async def test_an_agent_writes_no_slice_of_another_node(
    accounts: Accounts, make_node: MakeNode
) -> None:
    """A fake or broken-into agent: neither create, nor change, nor delete, nor steal a pool."""
    node, victim = make_node(), make_node()
    client, owner = await agent(accounts, node), await agent(accounts, victim)
    for item in slices(victim):
        with pytest.raises(errors.ApiForbidden, match=f"agent of node {node} writes slices of its"):
            await client.create(RESOURCE_SLICE, item)
        made = await owner.create(RESOURCE_SLICE, item)
        with pytest.raises(errors.ApiForbidden, match="writes slices of its own node"):
            await client.replace(RESOURCE_SLICE, {**made, "spec": {**made["spec"], "devices": []}})
        with pytest.raises(errors.ApiForbidden, match="writes slices of its own node"):
            await client.delete(RESOURCE_SLICE, item["metadata"]["name"])
        await owner.delete(RESOURCE_SLICE, item["metadata"]["name"])


async def test_a_slice_of_ones_own_that_lies_is_refused(
    accounts: Accounts, make_node: MakeNode
) -> None:
    node, victim = make_node(), make_node()
    client = await agent(accounts, node)
    (links,) = (item for item in slices(node) if item["spec"]["pool"]["name"] == f"usblink-{node}")
    elsewhere = deepcopy(links)
    elsewhere["spec"]["nodeName"] = victim
    with pytest.raises(errors.ApiForbidden, match="own node and driver alone"):
        await client.create(RESOURCE_SLICE, elsewhere)
    everywhere = deepcopy(links)
    del everywhere["spec"]["nodeName"]
    everywhere["spec"]["allNodes"] = True
    with pytest.raises(errors.ApiForbidden, match="own node and driver alone"):
        await client.create(RESOURCE_SLICE, everywhere)
    lying = deepcopy(links)
    (direct,) = (d for d in lying["spec"]["devices"] if d["name"] == "direct")
    direct["attributes"]["node"] = {"string": victim}
    with pytest.raises(errors.ApiForbidden, match="has that node as its attribute"):
        await client.create(RESOURCE_SLICE, lying)
    foreign = deepcopy(links)
    foreign["spec"]["driver"] = "gpu.example.com"
    with pytest.raises(errors.ApiForbidden, match="own node and driver alone"):
        await client.create(RESOURCE_SLICE, foreign)


async def test_a_token_without_node_writes_nothing(accounts: Accounts, make_node: MakeNode) -> None:
    client = await agent(accounts, None)
    with pytest.raises(errors.ApiForbidden, match="token does not name its node"):
        await client.create(RESOURCE_SLICE, slices(make_node())[0])


async def test_nobody_else_publishes_our_driver(accounts: Accounts, make_node: MakeNode) -> None:
    node = make_node()
    setup = await accounts.client(NAMESPACE, "usbdra-node-setup", node)
    item = slices(node)[0]
    with pytest.raises(errors.ApiForbidden, match="written by usbdra agents alone"):
        await setup.create(RESOURCE_SLICE, item)
    made = await (await agent(accounts, node)).create(RESOURCE_SLICE, item)
    admin = await accounts.admin()
    changed = {**made, "spec": {**made["spec"], "devices": []}}
    with pytest.raises(errors.ApiForbidden, match="written by usbdra agents alone"):
        await admin.replace(RESOURCE_SLICE, changed)
    made["metadata"]["labels"] = {"seen": "yes"}
    await admin.replace(RESOURCE_SLICE, made)
    await admin.delete(RESOURCE_SLICE, item["metadata"]["name"])
    other = deepcopy(item)
    other["spec"]["driver"] = "gpu.example.com"
    other["metadata"]["name"] = f"gpu-{secrets.token_hex(3)}"
    await admin.create(RESOURCE_SLICE, other)
    await admin.delete(RESOURCE_SLICE, other["metadata"]["name"])


def allocation(node: str) -> Object:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    results = [
        {"request": "usb", "driver": DRIVER, "pool": f"usblocal-{node}", "device": "usb-1"},
        {"request": "usb", "driver": "gpu.example.com", "pool": node, "device": "gpu-1"},
    ]
    return {
        "devices": {"results": results},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }


def entry(driver: str, pool: str, device: str) -> Object:
    return {"driver": driver, "pool": pool, "device": device}


async def allocated(admin: KubeClient, namespace: str, node: str) -> Object:
    made = await admin.create(RESOURCE_CLAIM, claim("one", usb()), namespace)
    made["status"] = {"allocation": allocation(node)}
    made = await admin.replace(RESOURCE_CLAIM, made, namespace, "status")
    made["status"]["devices"] = [entry("gpu.example.com", node, "gpu-1")]
    return await admin.replace(RESOURCE_CLAIM, made, namespace, "status")


async def test_an_agent_reports_on_its_own_claims_devices_and_nothing_else(
    accounts: Accounts, make_node: MakeNode, namespace: str
) -> None:
    node, other = make_node(), make_node()
    admin = await accounts.admin()
    made = await allocated(admin, namespace, node)
    client, stranger = await agent(accounts, node), await agent(accounts, other)
    report = deepcopy(made)
    report["status"]["devices"].append(entry(DRIVER, f"usblocal-{node}", "usb-1"))
    with pytest.raises(errors.ApiForbidden):
        await stranger.replace(RESOURCE_CLAIM, report, namespace, "status")
    made = await client.replace(RESOURCE_CLAIM, report, namespace, "status")
    assert len(made["status"]["devices"]) == 2

    def stolen(status: Object) -> None:
        term = status["allocation"]["nodeSelector"]["nodeSelectorTerms"][0]
        term["matchFields"][0]["values"] = [other]

    def reserved(status: Object) -> None:
        status["reservedFor"] = [{"resource": "pods", "name": "mine", "uid": "1"}]

    def foreign(status: Object) -> None:
        status["devices"] = [d for d in status["devices"] if d["driver"] == DRIVER]

    for change in (stolen, reserved, foreign):
        forged = deepcopy(made)
        change(forged["status"])
        with pytest.raises((errors.ApiForbidden, errors.ApiInvalid)) as caught:
            await client.replace(RESOURCE_CLAIM, forged, namespace, "status")
        assert change is stolen or "nothing else of a claim" in str(caught.value)


async def test_an_allocation_for_many_nodes_has_entries_of_each(
    accounts: Accounts, make_node: MakeNode, namespace: str
) -> None:
    node, other = make_node(), make_node()
    admin = await accounts.admin()
    made = await admin.create(RESOURCE_CLAIM, claim("many", usb()), namespace)
    label = {"key": "example.com/usbip", "operator": "In", "values": ["true"]}
    wide = {
        **allocation(node),
        "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [label]}]},
    }
    made["status"] = {"allocation": wide}
    made = await admin.replace(RESOURCE_CLAIM, made, namespace, "status")
    client, stranger = await agent(accounts, node), await agent(accounts, other)

    async def says(who: KubeClient, *used_on: str) -> Object:
        report = deepcopy(made)
        report["status"]["devices"] = [
            {**entry(DRIVER, f"usblocal-{node}", "usb-1"), "data": {"usedOn": name}}
            for name in used_on
        ]
        return await who.replace(RESOURCE_CLAIM, report, namespace, "status")

    with pytest.raises(errors.ApiError, match="used on its node alone"):
        await says(stranger, node)
    made = await says(client, node)
    assert made["status"]["devices"][0]["data"] == {"usedOn": node}
    for forged in ((other,), ()):  # somebody else's entry, taken over or away
        with pytest.raises(errors.ApiError, match="used on its node alone"):
            await says(stranger, *forged)
    made = await says(client)
    assert "devices" not in made["status"]


async def test_a_node_labels_itself_alone(accounts: Accounts, make_node: MakeNode) -> None:
    node, victim = make_node(labels={"example.com/zone": "a"}), make_node()
    setup = await accounts.client(NAMESPACE, "usbdra-node-setup", node)
    labels = {"metadata": {"labels": {KEY: "true"}}}
    done = await setup.merge(NODE, node, labels)
    assert done["metadata"]["labels"][KEY] == "true"
    await setup.merge(NODE, node, {"metadata": {"labels": {KEY: None}}})
    with pytest.raises(errors.ApiForbidden, match="changes its own node alone"):
        await setup.merge(NODE, victim, labels)
    with pytest.raises(errors.ApiForbidden, match="changes its own node alone"):
        await setup.delete(NODE, node)
    for patch in (
        {"metadata": {"labels": {"example.com/zone": "b"}}},
        {"metadata": {"labels": {"example.com/zone": None}}},
        {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
        {"metadata": {"annotations": {"example.com/note": "x"}}},
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}},
    ):
        with pytest.raises(errors.ApiForbidden, match=f"changes the label {KEY} of a node"):
            await setup.merge(NODE, node, patch)
    with pytest.raises(errors.ApiForbidden):
        await setup.merge(NODE, node, {"status": {"capacity": {"cpu": "64"}}}, subresource="status")
