# SPDX-License-Identifier: Apache-2.0
"""The documented workflow of an administrator on a real API server, with its exact outputs."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from tests.api import policies
from tests.api.accounts import Accounts
from tests.api.chart import GROUP, NAMESPACE, installed
from tests.api.conftest import MakeNode
from tests.api.devices import SECONDS, PublishingNode, condition, exists, has, until
from tests.cluster.api import ClusterApi
from tests.unit.slices.samples import offer
from usbdra.controller.leader import Leader, Times
from usbdra.controller.options import ControllerOptions
from usbdra.controller.parts import Office, factories, run_parts
from usbdra.kube import client as client_module
from usbdra.kube.client import KubeClient
from usbdra.kube.custom import Contract
from usbdra.kube.types import CLAIM_TEMPLATE, EVENT, LEASE, POD, RESOURCE_CLAIM
from usbdra.kube.types import NAMESPACE as SPACE
from usbdra.kube.watch import Reflector
from usbdra.slices.build import Visibility
from usbdra.types import Speed

CONTRACT = Contract(GROUP)
NUSB, USB = CONTRACT.node_device, CONTRACT.device
STICK = "usb-0951-1666-60a44c413fae"
LEASE_NAME = "usbdra-controller"
QUICK = Times(duration=15.0, deadline=10.0, every=0.5)


def ours(item: dict[str, Any]) -> bool:
    kinds = ("CustomResourceDefinition", "DeviceClass")
    return item["kind"] in kinds or item["metadata"]["name"] == "usbdra-controller"


@pytest.fixture(scope="module", autouse=True)
def chart(api: ClusterApi) -> Iterator[None]:
    """Kinds, classes, and the controller's account with its rights."""
    with installed(api, only=ours):
        for kind in (NUSB, USB, CONTRACT.attachment):
            api.kubectl("wait", "--for=condition=Established", "crd", f"{kind.plural}.{GROUP}")
            served(api, kind.plural)
        yield


def served(api: ClusterApi, plural: str, seconds: float = 60) -> None:
    """Wait until objects of a kind can be listed: some seconds after it is established."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            api.kubectl("get", f"{plural}.{GROUP}", "--all-namespaces")
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.3)
        else:
            return


@pytest_asyncio.fixture
async def admin(accounts: Accounts, api: ClusterApi) -> AsyncIterator[KubeClient]:
    yield await accounts.admin()
    # No kubelet ends pods, and claims wait for them.
    api.kubectl("delete", "pods", "--all", "--all-namespaces", "--grace-period=0", "--force")
    api.kubectl("delete", "nusb,resourceslices", "--all")
    api.kubectl("delete", "usb", "--all", "--all-namespaces")


@asynccontextmanager
async def controller(accounts: Accounts, identity: str = "one") -> AsyncIterator[Leader]:
    """A whole controller with its own account."""
    client = await accounts.client(NAMESPACE, "usbdra-controller")
    options = ControllerOptions(identity=identity, namespace=NAMESPACE, absent_grace=2.0)
    office = Office(client, options)
    leader = Leader(client, LEASE_NAME, NAMESPACE, identity, times=QUICK)

    async def work() -> None:
        await run_parts(office, factories(options))

    async def stand() -> None:
        while True:  # as daemon.py does: a busy machine may cost the lead
            await leader.lead(work)

    task = asyncio.create_task(stand())
    try:
        yield leader
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def assign(admin: KubeClient, namespace: str, **more: Any) -> None:
    await admin.merge(NUSB, STICK, {"spec": {"assignedNamespace": namespace, **more}})


def table(api: ClusterApi, *words: str) -> list[str]:
    """Lines of kubectl's table, ages made one."""
    lines = api.kubectl("get", *words).splitlines()
    return [re.sub(r"\b\d+(m\d+)?s\b", "AGE", line).rstrip() for line in lines]


async def test_the_documented_workflow(
    api: ClusterApi, accounts: Accounts, admin: KubeClient, make_node: MakeNode, namespace: str
) -> None:
    node = PublishingNode(admin, make_node("node-a"))
    async with controller(accounts):
        await node.publish(offer())
        await until(admin, NUSB, STICK, has("Ready", "Ready"))
        assert table(api, "nusb") == [
            "NAME                         NODE     READY   ASSIGNED   ATTACHED   NAMESPACE   AGE",
            f"{STICK}   node-a   True    False      False                  AGE",
        ]
        assert table(api, "nusb", "-o", "wide")[0].split()[-5:] == [
            "VENDOR", "PRODUCT", "SERIAL", "SPEED", "HOST",
        ]  # fmt: skip
        api.kubectl(
            "patch", "nusb", STICK, "--type=merge",
            "-p", f'{{"spec":{{"assignedNamespace":"{namespace}"}}}}',
        )  # fmt: skip
        await until(admin, NUSB, STICK, has("Assigned", "Assigned"))
        assert table(api, "nusb") == [
            "NAME                         NODE     READY   ASSIGNED   ATTACHED   NAMESPACE"
            "       AGE",
            f"{STICK}   node-a   True    True       False      {namespace}   AGE",
        ]
        assert table(api, "usb", "-n", namespace) == [
            "NAME                         NODE     MANUFACTURER   PRODUCT            SERIAL"
            "         ATTACHED   AGE",
            f"{STICK}   node-a   Kingston       DataTraveler 3.0   60A44C413FAE   False      AGE",
        ]
        assert await exists(admin, RESOURCE_CLAIM, STICK, namespace)
        assert await exists(admin, CLAIM_TEMPLATE, STICK, namespace)
        await assign(admin, "")
        await until(admin, NUSB, STICK, has("Assigned", "Available"))
        assert not await exists(admin, USB, STICK, namespace)
        assert not await exists(admin, RESOURCE_CLAIM, STICK, namespace)
        assert not await exists(admin, CLAIM_TEMPLATE, STICK, namespace)
        await node.publish()
        await until(admin, NUSB, STICK, lambda item: item is None)


def pod(name: str, node: str, claim: str = STICK) -> dict[str, Any]:
    """A pod that uses a claim, the assigned stick's shared one, on a node; no kubelet starts it."""
    container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "stick"}]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
            "resourceClaims": [{"name": "stick", "resourceClaimName": claim}],
        },
    }


def results(claim: dict[str, Any] | None) -> list[tuple[str, str, str]]:
    """(request, pool, device) of an allocated claim."""
    allocation = ((claim or {}).get("status") or {}).get("allocation") or {}
    found = allocation.get("devices", {}).get("results", ())
    return [(r["request"], r["pool"], r["device"]) for r in found]


def reserved(claim: dict[str, Any] | None) -> bool:
    return bool(((claim or {}).get("status") or {}).get("reservedFor"))


@pytest.mark.parametrize(
    ("visibility", "here", "there"),
    [
        (
            Visibility.NODE,
            [("usb/local", "usb-node-a", STICK)],
            [("usb/remote", "usblink-node-b", "vhci-high")],
        ),
        (
            Visibility.CLUSTER,
            [("usb", "usb-node-a", STICK), ("link/direct", "usblink-node-a", "direct")],
            [("usb", "usb-node-a", STICK), ("link/vhci", "usblink-node-b", "vhci-high")],
        ),
    ],
)
async def test_the_shared_claim_is_allocated_on_any_node_with_a_port_of_the_right_hub(
    api: ClusterApi,
    accounts: Accounts,
    admin: KubeClient,
    make_node: MakeNode,
    namespace: str,
    visibility: Visibility,
    here: list[tuple[str, str, str]],
    there: list[tuple[str, str, str]],
) -> None:
    label = {f"{GROUP}/usbip": "true"}
    nodes = [PublishingNode(admin, make_node(n, label), visibility) for n in ("node-a", "node-b")]
    async with controller(accounts):
        await nodes[0].publish(offer())
        await nodes[1].publish(offer("usb-1d6b-0104-port-2-0a0b0c0d", speed=Speed.SUPER))
        await until(admin, NUSB, STICK, has("Ready", "Ready"))
        await assign(admin, namespace)
        for node, expected in (("node-a", here), ("node-b", there)):
            await until(admin, RESOURCE_CLAIM, STICK, bool, namespace)
            api.apply(pod("user", node), namespace)
            claim = await until(admin, RESOURCE_CLAIM, STICK, reserved, namespace)
            assert sorted(results(claim)) == sorted(expected)
            shown = await until(admin, NUSB, STICK, has("Assigned", "Assigned"))
            assert condition(shown, "Assigned")[0] == "True"
            await until(admin, NUSB, STICK, has("Attached", "Available"))
            api.kubectl("-n", namespace, "delete", "pod", "user", "--grace-period=0", "--force")
            await until(
                admin, RESOURCE_CLAIM, STICK, lambda c: c is None or not reserved(c), namespace
            )


async def test_a_move_waits_for_its_pods_shows_what_it_waits_for_and_survives_restarts(
    api: ClusterApi, accounts: Accounts, admin: KubeClient, make_node: MakeNode, namespace: str
) -> None:
    node = PublishingNode(admin, make_node("node-a"))
    await node.publish(offer())
    await admin.create(SPACE, {"metadata": {"name": f"{namespace}-next"}})
    async with controller(accounts):
        await until(admin, NUSB, STICK, has("Ready", "Ready"))
        await assign(admin, namespace)
        await until(admin, NUSB, STICK, has("Assigned", "Assigned"))
        api.apply(pod("user", "node-a"), namespace)
        claim = await until(admin, RESOURCE_CLAIM, STICK, reserved, namespace)
        report(api, namespace, claim, "True", "Local")
        await until(admin, NUSB, STICK, has("Attached", "AttachedToPod"))
        await until(admin, USB, STICK, has("Attached", "AttachedToPod"), namespace)
        report(api, namespace, claim, "False", "LinkLost")
        await until(admin, NUSB, STICK, has("Attached", "LinkLost"))
        await told(admin, namespace, {("Normal", "AttachedToPod"), ("Warning", "LinkLost")})
        await assign(admin, f"{namespace}-next")
        shown = await until(admin, USB, STICK, has("Assigned", "InProgress"), namespace)
        (waits,) = [c for c in shown["status"]["conditions"] if c["type"] == "Assigned"]
        assert waits["message"] == f"pods of namespace {namespace} still use it: user"
        await until(admin, CLAIM_TEMPLATE, STICK, lambda item: item is None, namespace)
    assert (await admin.get(POD, "user", namespace))["metadata"].get("deletionTimestamp") is None
    api.kubectl("-n", namespace, "delete", "pod", "user", "--grace-period=0", "--force")
    async with controller(accounts):
        await until(admin, USB, STICK, lambda item: item is None, namespace)
        await until(admin, NUSB, STICK, has("Assigned", "Assigned"))
        assert await exists(admin, RESOURCE_CLAIM, STICK, f"{namespace}-next")
    await admin.delete(SPACE, f"{namespace}-next")


async def told(admin: KubeClient, namespace: str, wanted: set[tuple[str, str]]) -> None:
    """Wait until just these Events, as (type, reason), are there about USBDevices."""
    reflector = Reflector(admin, EVENT, namespace)
    async with asyncio.timeout(SECONDS), aclosing(reflector.run()) as news:
        async for _ in news:
            about = [e for e in reflector.cache.values() if e["regarding"]["kind"] == USB.kind]
            if {(e["type"], e["reason"]) for e in about} == wanted:
                assert len(about) == len(wanted)
                return


def report(
    api: ClusterApi, namespace: str, claim: dict[str, Any], status: str, reason: str, **data: Any
) -> None:
    """As the agent reports in status.devices."""
    (_, pool, device), *_ = results(claim)
    ready = {
        "type": "Ready", "status": status, "reason": reason, "message": "as reported",
        "lastTransitionTime": "2026-01-31T12:00:00Z",
    }  # fmt: skip
    entry: dict[str, Any] = {
        "driver": CONTRACT.driver, "pool": pool, "device": device, "conditions": [ready],
    }  # fmt: skip
    entry |= {"data": data} if data else {}
    api.resource.patch_namespaced_resource_claim_status(
        claim["metadata"]["name"], namespace, {"status": {"devices": [entry]}}
    )


async def test_force_deletes_the_pods(
    api: ClusterApi, accounts: Accounts, admin: KubeClient, make_node: MakeNode, namespace: str
) -> None:
    node = PublishingNode(admin, make_node("node-a"))
    await node.publish(offer())
    async with controller(accounts):
        await until(admin, NUSB, STICK, has("Ready", "Ready"))
        await assign(admin, namespace)
        await until(admin, NUSB, STICK, has("Assigned", "Assigned"))
        api.apply(pod("user", "node-a"), namespace)
        await until(admin, RESOURCE_CLAIM, STICK, reserved, namespace)
        await assign(admin, "", force=True)
        # No kubelet is here to end the pod; that it is asked to end is what force means.
        going = await until(
            admin, POD, "user", lambda p: p is None or "deletionTimestamp" in p["metadata"],
            namespace,
        )  # fmt: skip
        if going:
            api.kubectl("-n", namespace, "delete", "pod", "user", "--grace-period=0", "--force")
        await until(admin, NUSB, STICK, has("Assigned", "Available"))
        assert not await exists(admin, USB, STICK, namespace)


async def test_on_reconnect_evict_evicts_at_the_loss_and_not_before(
    api: ClusterApi, accounts: Accounts, admin: KubeClient, make_node: MakeNode, namespace: str
) -> None:
    node = PublishingNode(admin, make_node("node-a"))
    await node.publish(offer())
    parameters = {
        "apiVersion": f"{CONTRACT.driver}/v1alpha1", "kind": "USBDeviceConfig",
        "onReconnect": "evict",
    }  # fmt: skip
    config: dict[str, Any] = {"opaque": {"driver": CONTRACT.driver, "parameters": parameters}}
    async with controller(accounts):
        api.apply(policies.claim("mine", policies.usb(), config=[config]), namespace)
        api.apply(pod("user", "node-a", "mine"), namespace)
        claim = await until(admin, RESOURCE_CLAIM, "mine", reserved, namespace)
        report(api, namespace, claim, "False", "LinkLost", name=STICK)  # never was ready
        await until(admin, NUSB, STICK, lambda item: "as reported" in str(item))
        assert "deletionTimestamp" not in (await admin.get(POD, "user", namespace))["metadata"]
        report(api, namespace, claim, "False", "LinkLost", name=STICK, lost=True)
        await until(
            admin, POD, "user", lambda p: p is None or "deletionTimestamp" in p["metadata"],
            namespace,
        )  # fmt: skip


async def test_a_namespace_made_again_does_not_inherit_the_device(
    accounts: Accounts, admin: KubeClient, make_node: MakeNode, namespace: str
) -> None:
    node, space = PublishingNode(admin, make_node("node-a")), f"{namespace}-short"
    await node.publish(offer())
    await admin.create(SPACE, {"metadata": {"name": space}})
    async with controller(accounts):
        await until(admin, NUSB, STICK, has("Ready", "Ready"))
        await assign(admin, space)
        await until(admin, NUSB, STICK, has("Assigned", "Assigned"))
    await admin.delete(SPACE, space)
    await until(admin, SPACE, space, lambda item: item is None)
    await admin.create(SPACE, {"metadata": {"name": space}})
    async with controller(accounts):
        shown = await until(admin, NUSB, STICK, has("Assigned", "Available"))
        assert shown["spec"]["assignedNamespace"] == ""
        assert not await exists(admin, USB, STICK, space)
    await admin.delete(SPACE, space)


async def test_of_two_controllers_one_leads_and_the_other_takes_over(
    accounts: Accounts, admin: KubeClient, make_node: MakeNode
) -> None:
    node = PublishingNode(admin, make_node("node-a"))
    async with AsyncExitStack() as stack:
        async with controller(accounts, "one") as one:
            await until(admin, LEASE, LEASE_NAME, held_by("one"), NAMESPACE)
            two = await stack.enter_async_context(controller(accounts, "two"))
            await node.publish(offer())
            await until(admin, NUSB, STICK, has("Ready", "Ready"))
            assert (one.leading, two.leading) == (True, False)
        await until(admin, LEASE, LEASE_NAME, held_by("two"), NAMESPACE)
        await node.publish()
        await until(admin, NUSB, STICK, has("Ready", "NotFound"))


def held_by(identity: str) -> Any:
    return lambda lease: ((lease or {}).get("spec") or {}).get("holderIdentity") == identity


async def test_a_removed_node_is_said_and_its_assigned_device_kept(
    api: ClusterApi, accounts: Accounts, admin: KubeClient, make_node: MakeNode, namespace: str
) -> None:
    node = PublishingNode(admin, make_node("node-a"))
    await node.publish(offer())
    async with controller(accounts):
        await until(admin, NUSB, STICK, has("Ready", "Ready"))
        await assign(admin, namespace)
        await until(admin, NUSB, STICK, has("Assigned", "Assigned"))
        api.core.delete_node("node-a")
        shown = await until(admin, NUSB, STICK, has("Ready", "NotFound"))
        assert condition(shown, "Assigned") == ("True", "Assigned")
        assert shown["spec"]["assignedNamespace"] == namespace


@pytest.mark.parametrize(
    ("kind", "spec", "message"),
    [
        ("NodeUSBDevice", {"assignedNamespace": "No_Such"}, "must be the name of a namespace"),
        ("NodeUSBDevice", {"assignedNamespaces": "lab"}, "unknown field"),
        ("USBAttachment", {"device": "d"}, "name either virtualMachine or pod, and not both"),
        (
            "USBAttachment",
            {"device": "d", "pod": {"name": "p"}, "virtualMachine": {"name": "v"}},
            "name either virtualMachine or pod, and not both",
        ),
        ("USBAttachment", {"pod": {"name": "p"}}, "spec.device: Required value"),
    ],
)
def test_bad_objects_are_refused_with_the_reason(
    api: ClusterApi, namespace: str, kind: str, spec: dict[str, Any], message: str
) -> None:
    item = {"apiVersion": f"{GROUP}/v1alpha2", "kind": kind, "metadata": {"name": "bad"}}
    with pytest.raises(RuntimeError, match=re.escape(message)):
        api.kubectl(
            "-n", namespace, "create", "--dry-run=server", "--validate=strict", "-f", "-",
            text=json.dumps({**item, "spec": spec}),
        )  # fmt: skip


def test_an_attachment_cannot_be_changed_into_another(api: ClusterApi, namespace: str) -> None:
    item = {"apiVersion": f"{GROUP}/v1alpha2", "kind": "USBAttachment", "metadata": {"name": "x"}}
    api.apply({**item, "spec": {"device": "one", "pod": {"name": "p"}}}, namespace)
    with pytest.raises(RuntimeError, match="spec cannot be changed"):
        api.apply({**item, "spec": {"device": "two", "pod": {"name": "p"}}}, namespace)


async def test_a_list_in_pages_is_one_list_to_watch_from(
    admin: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages of the real server: all objects once, of one moment, and nothing missed after it."""
    monkeypatch.setattr(client_module, "PAGE", 2)
    names = [f"usb-page-{number}" for number in range(5)]
    for name in names:
        body = {"apiVersion": NUSB.api_version, "kind": NUSB.kind, "metadata": {"name": name}}
        await admin.create(NUSB, body)
    found = await admin.list(NUSB, keep=lambda item: {"name": item["metadata"]["name"]})
    assert [item["name"] for item in found["items"]] == names
    await admin.delete(NUSB, names[0])
    async for event, item in admin.watch(NUSB, found["metadata"]["resourceVersion"]):
        if event != "BOOKMARK":
            assert (event, item["metadata"]["name"]) == ("DELETED", names[0])
            break
