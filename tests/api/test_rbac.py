# SPDX-License-Identifier: Apache-2.0
"""Rights: docs/security.md lists each one the chart gives, and the chart's are enough."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.accounts import Accounts
from tests.api.chart import GROUP, NAMESPACE, Manifest, installed, manifests
from tests.api.conftest import MakeNode
from tests.api.policies import DRIVER, claim, usb
from tests.cluster.api import ClusterApi
from tests.cluster.driver import ROOT
from usbdra.agent.reporter import KubeReporter
from usbdra.kube import errors
from usbdra.kube.client import KubeClient
from usbdra.kube.types import EVENT, NODE, RESOURCE_CLAIM
from usbdra.state.claims import ClaimRecord, ClaimRef, Phase
from usbdra.types import ClaimUid, NodeName

EVERYTHING = {
    "agent.certificates.mode": "Cluster",
    "policies.enabled": "true",
    "requireAssignment": "true",
    "virtualMachines.enabled": "true",
    "virtualMachines.kind": "Minimal",
    "outsideHosts.enabled": "true",
    "controller.web.enabled": "true",
    "metrics.enabled": "true",
}
Right = tuple[str, str, str]
"""(role, resource with its group and names, verb)."""


def given() -> set[Right]:
    """Every right of the chart with all of it switched on."""
    rights: set[Right] = set()
    for item in manifests(EVERYTHING):
        name = item["metadata"]["name"]
        if item["kind"] in ("Role", "ClusterRole") and not _is_hook(item):
            for rule in item["rules"]:
                rights |= {
                    (name, text, verb) for text in _resources(rule) for verb in rule["verbs"]
                }
    return rights


def _is_hook(item: Manifest) -> bool:
    """Of the uninstallation; helm template leaves hooks in."""
    return "helm.sh/hook" in (item["metadata"].get("annotations") or {})


def _resources(rule: Manifest) -> Iterator[str]:
    yield from rule.get("nonResourceURLs", ())
    if "nonResourceURLs" in rule:
        return
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            names = ",".join(rule.get("resourceNames", ()))
            yield f"{resource}.{group}".rstrip(".") + (f" ({names})" if names else "")


def documented() -> set[Right]:
    """The table of docs/security.md: | role | resources | verbs | why |."""
    text = (ROOT / "docs/security.md").read_text().split("## Rights", 1)[1].split("\n## ", 1)[0]
    rights: set[Right] = set()
    role = ""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if not line.startswith("| ") or len(cells) != 4 or cells[0] in ("role", "---"):
            continue
        role = cells[0].strip("`") or role
        assert len(cells[3]) > 10, f"no reason for {line}"
        names = cells[1].replace("<group>", GROUP).replace("<driver>", DRIVER)
        for resource in re.findall(r"`([^`]+)`", names):
            rights |= {(role, resource, verb) for verb in re.findall(r"[a-z:-]+", cells[2])}
    return rights


def test_every_right_is_documented_and_every_documented_one_is_given() -> None:
    assert documented() == given()


def test_no_right_is_for_everything() -> None:
    for role, resource, verb in given():
        assert "*" not in role + resource + verb


@pytest.fixture(scope="module")
def rights(api: ClusterApi) -> Iterator[None]:
    kinds = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
    with installed(api, EVERYTHING, lambda item: item["kind"] in kinds):
        yield


async def allocated(admin: KubeClient, body: dict[str, Any], namespace: str, node: str) -> ClaimRef:
    """The claim made, and its device allocated on the node."""
    made = await admin.create(RESOURCE_CLAIM, body, namespace)
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    result = {"request": "usb", "driver": DRIVER, "pool": f"usb-{node}", "device": "usb-1"}
    devices: dict[str, Any] = {"results": [result]}
    if config := made["spec"]["devices"].get("config"):
        devices["config"] = [{**entry, "source": "FromClaim"} for entry in config]
    nodes = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    made["status"] = {"allocation": {"devices": devices, "nodeSelector": nodes}}
    await admin.replace(RESOURCE_CLAIM, made, namespace, "status")
    return ClaimRef(namespace, "one", ClaimUid(made["metadata"]["uid"]))


async def reported(reporter: KubeReporter, ref: ClaimRef, node: str) -> None:
    """Tell that the claim's device is ready."""
    record = ClaimRecord(ref, Phase.PREPARED, "boot", ())
    await reporter.prepared(record, [{"pool": f"usb-{node}", "device": "usb-1", "data": {"a": 1}}])


async def test_an_agent_reports_with_the_charts_rights(
    rights: None, accounts: Accounts, make_node: MakeNode, namespace: str
) -> None:
    """status.devices by server-side apply, also where the server asks for the driver's own verb."""
    node = make_node()
    admin = await accounts.admin()
    ref = await allocated(admin, claim("one", usb()), namespace, node)
    client = await accounts.client(NAMESPACE, "usbdra-agent", node)
    reporter = KubeReporter(client, DRIVER, NodeName(node))
    await reported(reporter, ref, node)
    await reporter.event(ref, "Attached", "it is there", False)
    await reporter.flushed()
    stored = await admin.get(RESOURCE_CLAIM, "one", namespace)
    (device,) = stored["status"]["devices"]
    assert device["data"] == {"a": 1, "usedOn": node}
    (event,) = (await admin.list(EVENT, namespace))["items"]
    assert (event["reason"], event["regarding"]["name"]) == ("Attached", "one")
    await reporter.released(ref)
    await reporter.flushed()
    stored = await admin.get(RESOURCE_CLAIM, "one", namespace)
    assert not stored["status"].get("devices")


async def test_an_agent_reports_on_a_claim_whose_parameters_are_in_no_order(
    rights: None, accounts: Accounts, make_node: MakeNode, namespace: str
) -> None:
    """Server-side apply is refused there: it would write them sorted."""
    node = make_node()
    admin = await accounts.admin()
    body = claim("one", usb())
    parameters = {"kind": "USBDeviceConfig", "apiVersion": f"{DRIVER}/v1alpha1"}
    body["spec"]["devices"]["config"] = [{"opaque": {"driver": DRIVER, "parameters": parameters}}]
    ref = await allocated(admin, body, namespace, node)
    client = await accounts.client(NAMESPACE, "usbdra-agent", node)
    reporter = KubeReporter(client, DRIVER, NodeName(node))
    await reported(reporter, ref, node)
    await reporter.flushed()
    (device,) = (await admin.get(RESOURCE_CLAIM, "one", namespace))["status"]["devices"]
    assert device["data"] == {"a": 1, "usedOn": node}


async def test_an_agent_changes_no_claim_pod_or_device_object(
    rights: None, accounts: Accounts, make_node: MakeNode, namespace: str
) -> None:
    client = await accounts.client(NAMESPACE, "usbdra-agent", make_node())
    admin = await accounts.admin()
    made = await admin.create(RESOURCE_CLAIM, claim("one", usb()), namespace)

    async def refused(request: object) -> None:
        with pytest.raises(errors.ApiForbidden):
            await request  # type: ignore[misc]

    await refused(client.replace(RESOURCE_CLAIM, made, namespace))
    await refused(client.replace(RESOURCE_CLAIM, made, namespace, "status"))
    await refused(client.delete(RESOURCE_CLAIM, "one", namespace))
    await refused(client.create(RESOURCE_CLAIM, claim("two", usb()), namespace))
    await refused(client.list(RESOURCE_CLAIM))
    controller = await accounts.client(NAMESPACE, "usbdra-controller")
    await refused(controller.delete(NODE, "any"))
