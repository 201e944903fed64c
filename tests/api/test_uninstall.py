# SPDX-License-Identifier: Apache-2.0
"""The chart's Job before an uninstallation, with its own account's rights on the real API."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from kubernetes import client

from tests.api.accounts import Accounts
from tests.api.conftest import MakeNode
from tests.cluster.api import ClusterApi
from tests.cluster.driver import DRIVER, GROUP, NAMESPACE, ROOT
from tests.cluster.manifests import links_slice, pod
from usbdra.errors import Refused
from usbdra.kube.client import KubeClient
from usbdra.slices.withdraw import Installation, withdraw

AGENTS = "app.kubernetes.io/name=usbdra,app.kubernetes.io/component=agent"
WHAT = Installation(driver=DRIVER, namespace=NAMESPACE, daemon_set="usbdra-agent", agents=AGENTS)
OTHER = "gpu.example.com"
NEEDED = {
    ("Namespace", NAMESPACE),
    ("DaemonSet", "usbdra-agent"),
    ("ServiceAccount", "usbdra-agent"),
}


def documents(name: str) -> list[dict[str, Any]]:
    return [item for item in yaml.safe_load_all((ROOT / "deploy" / name).read_text()) if item]


@pytest.fixture
def installed(api: ClusterApi, make_node: MakeNode) -> Iterator[str]:
    """The agents' DaemonSet, one node for it, the Job's account; the node's name."""
    api.wait(
        api.resource.list_resource_claim_for_all_namespaces,
        lambda claims: True if not any(in_use(each) for each in claims) else None,
        "claims of other tests are free",
    )
    node = make_node(labels={f"{GROUP}/usbip": "true"})
    rights = [item for item in documents("uninstall.yaml") if item["kind"] != "Job"]
    chart = documents("install.yaml")
    parts = [item for item in chart if (item["kind"], item["metadata"]["name"]) in NEEDED]
    api.apply(parts + rights, namespace=NAMESPACE)
    api.wait(
        api.core.list_namespaced_pod,
        lambda pods: True if any(each.spec.node_name == node for each in pods) else None,
        "the agent's pod",
        namespace=NAMESPACE,
        label_selector=AGENTS,
    )
    for driver in (DRIVER, OTHER):
        api.apply(links_slice(f"{node}-{driver}", node, driver))
    yield node
    made = [item for item in parts + rights if item["kind"] != "Namespace"]
    api.delete(made, namespace=NAMESPACE)
    end_pods_once_told(api)
    api.delete([links_slice(f"{node}-{driver}", node, driver) for driver in (DRIVER, OTHER)])


def in_use(claim: Any) -> bool:
    """Whether a pod holds the claim."""
    return bool(claim.status and claim.status.reserved_for)


def end_pods_once_told(api: ClusterApi) -> None:
    """What a kubelet does: when its pod is to end, it ends and the kubelet says so."""
    api.wait(
        api.core.list_namespaced_pod,
        lambda found: True if all(each.metadata.deletion_timestamp for each in found) else None,
        "the agents are told to end",
        namespace=NAMESPACE,
        label_selector=AGENTS,
    )
    for each in api.core.list_namespaced_pod(NAMESPACE, label_selector=AGENTS).items:
        api.core.delete_namespaced_pod(each.metadata.name, NAMESPACE, grace_period_seconds=0)


def drivers(api: ClusterApi, node: str) -> set[str]:
    found = api.resource.list_resource_slice(field_selector=f"spec.nodeName={node}").items
    return {item.spec.driver for item in found}


def daemon_sets(api: ClusterApi) -> list[Any]:
    return list(client.AppsV1Api(api.client).list_namespaced_daemon_set(NAMESPACE).items)


def hold(api: ClusterApi, namespace: str, name: str) -> None:
    """A claim that has a device of the driver and is held by a pod, which exists."""
    request = {"name": "usb", "exactly": {"deviceClassName": "usb"}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [request]}},
    }
    api.apply([claim, pod("reader", schedulingGates=[{"name": "example.com/never"}])], namespace)
    uid = api.core.read_namespaced_pod("reader", namespace).metadata.uid
    result = {"request": "usb", "driver": DRIVER, "pool": "a", "device": "x"}
    held = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "reader", "uid": uid}],
    }
    api.resource.patch_namespaced_resource_claim_status(name, namespace, {"status": held})


async def job(accounts: Accounts) -> KubeClient:
    return await accounts.client(NAMESPACE, "usbdra-withdraw")


async def test_agents_and_slices_go_by_the_jobs_own_rights(
    api: ClusterApi, accounts: Accounts, installed: str
) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.to_thread(end_pods_once_told, api))
        gone = group.create_task(withdraw(await job(accounts), WHAT, patience=60))
    assert gone.result() == 1
    assert drivers(api, installed) == {OTHER}
    assert daemon_sets(api) == []


async def test_r55_a_claim_in_use_stops_it_before_anything_is_done(
    api: ClusterApi, accounts: Accounts, installed: str, namespace: str
) -> None:
    hold(api, namespace, "disk")
    with pytest.raises(Refused, match=rf"{namespace}/disk \(reader\)"):
        await withdraw(await job(accounts), WHAT)
    assert drivers(api, installed) == {DRIVER, OTHER}
    assert [item.metadata.name for item in daemon_sets(api)] == ["usbdra-agent"]
