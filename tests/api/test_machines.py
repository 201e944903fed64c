# SPDX-License-Identifier: Apache-2.0
"""Devices for virtual machines on a real API server and scheduler, agents and kubelets played."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from tests.api.accounts import Accounts
from tests.api.chart import GROUP, NAMESPACE, installed
from tests.api.conftest import MakeNode
from tests.api.devices import PublishingNode, condition, exists, has, until
from tests.cluster.api import ClusterApi
from tests.unit.slices.samples import offer
from usbdra.agent.plugreports import PlugReports
from usbdra.controller.options import ControllerOptions, MachineSettings
from usbdra.controller.parts import Office, factories, run_parts
from usbdra.hotplug.qemu import Address
from usbdra.kube import errors
from usbdra.kube.client import KubeClient
from usbdra.kube.custom import Contract
from usbdra.kube.types import POD, RESOURCE_CLAIM, Object
from usbdra.slices.build import Visibility
from usbdra.state.plugs import PlugRecord
from usbdra.types import ClaimUid

CONTRACT = Contract(GROUP)
NUSB, USB, USBA, VM = CONTRACT.node_device, CONTRACT.device, CONTRACT.attachment, CONTRACT.machine
STICK = "usb-0951-1666-60a44c413fae"
VALUES = {
    "virtualMachines.enabled": "true",
    "virtualMachines.kind": "Minimal",
    "policies.enabled": "true",
}
KINDS = ("nodeusbdevices", "usbdevices", "usbattachments", "virtualmachines")
WANTED = ("usbdra-controller", "usbdra-controller-machines", "usbdra-agent",
          "usbdra-agent-machines", "usbdra-attachments")  # fmt: skip


def ours(item: Object) -> bool:
    kinds = ("CustomResourceDefinition", "DeviceClass")
    return item["kind"] in kinds or item["metadata"]["name"] in WANTED


@pytest.fixture(scope="module", autouse=True)
def chart(api: ClusterApi) -> Iterator[None]:
    """Kinds, classes, both accounts with their rights, and the policy for agents."""
    with installed(api, VALUES, only=ours):
        for kind in KINDS:
            api.kubectl("wait", "--for=condition=Established", "crd", f"{kind}.{GROUP}")
        yield


class Lab:
    """A namespace with a stick on node a, two nodes, and a controller that runs."""

    def __init__(
        self, api: ClusterApi, admin: KubeClient, accounts: Accounts, namespace: str
    ) -> None:
        self.api, self.admin, self.accounts, self.namespace = api, admin, accounts, namespace

    def machine(self, *devices: str, name: str = "vm") -> None:
        """A VirtualMachine with a list."""
        self.api.apply(
            {
                "apiVersion": VM.api_version,
                "kind": VM.kind,
                "metadata": {"name": name},
                "spec": {"usbDevices": [{"name": device} for device in devices]},
            },
            self.namespace,
        )

    async def run(self, pod: str, node: str, machine: str = "vm") -> Object:
        """A pod of a machine that runs on a node."""
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": pod,
                "labels": {CONTRACT.machine_key: machine},
                "annotations": {CONTRACT.key("qmp"): "run/qmp.sock"},
            },
            "spec": {
                "nodeName": node,
                "containers": [{"name": "qemu", "image": "none"}],
                "tolerations": [{"operator": "Exists"}],
            },
        }
        self.api.apply(body, self.namespace)
        running = {"status": {"phase": "Running"}}
        return await self.admin.merge(
            POD, pod, running, namespace=self.namespace, subresource="status"
        )

    async def app(self, name: str, node: str, life: int) -> None:
        """A pod of the namespace runs on a node, its container in this life of its."""
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "nodeName": node,
                "containers": [{"name": "main", "image": "none"}],
                "tolerations": [{"operator": "Exists"}],
            },
        }
        self.api.apply(body, self.namespace)
        container = {
            "name": "main", "containerID": f"containerd://{life:064x}", "image": "none",
            "imageID": "none", "ready": True, "restartCount": life - 1,
            "state": {"running": {"startedAt": "2026-01-31T12:00:00Z"}},
        }  # fmt: skip
        running = {"status": {"phase": "Running", "containerStatuses": [container]}}
        await self.admin.merge(POD, name, running, namespace=self.namespace, subresource="status")

    async def attachment(self, reason: str) -> Object:
        """The one USBAttachment, once Attached has this reason."""
        name = ""
        async with asyncio.timeout(120):
            while not name:
                items = (await self.admin.list(USBA, self.namespace))["items"]
                name = items[0]["metadata"]["name"] if items else ""
                await asyncio.sleep(0.1)
        return await until(self.admin, USBA, name, has("Attached", reason), self.namespace)

    async def holder(self, node: str) -> str:
        """The name of the holder, once it is scheduled there with its claim."""
        attachment = await self.attachment("InProgress")
        name = attachment["metadata"]["name"]
        await until(
            self.admin, USBA, name,
            lambda a: (a or {}).get("status", {}).get("nodeName") == node, self.namespace,
        )  # fmt: skip
        seen = await self.admin.get(USBA, name, self.namespace)
        pod = await self.admin.get(POD, seen["status"]["holderName"], self.namespace)
        assert pod["spec"]["nodeName"] == node
        return str(pod["metadata"]["name"])

    async def fetched(self, holder: str) -> None:
        """The node's agent says that the claim has its device."""
        claim = await until(
            self.admin, RESOURCE_CLAIM, holder,
            lambda c: bool(((c or {}).get("status") or {}).get("reservedFor")), self.namespace,
        )  # fmt: skip
        driver = CONTRACT.driver
        results = claim["status"]["allocation"]["devices"]["results"]
        (result, *_) = [r for r in results if r["pool"].startswith("usb-")]
        ready = {
            "type": "Ready", "status": "True", "reason": "Attached", "message": "at port 0",
            "lastTransitionTime": "2026-01-31T12:00:00Z",
        }  # fmt: skip
        entry = {"driver": driver, "pool": result["pool"], "device": result["device"]}
        await self.admin.apply(
            RESOURCE_CLAIM,
            {
                "metadata": {"name": holder, "uid": claim["metadata"]["uid"]},
                "status": {"devices": [{**entry, "conditions": [ready]}]},
            },
            manager="node",
            namespace=self.namespace,
            subresource="status",
        )

    async def plugged(self, node: str) -> None:
        """The node's agent, with its own account and rights, says that the plug is in."""
        attachment = await self.attachment("InProgress")
        status = attachment["status"]
        record = PlugRecord(
            ClaimUid(status["claimUID"]), self.namespace, attachment["metadata"]["name"],
            attachment["metadata"]["uid"], status["target"]["uid"],
            status["target"].get("socket", ""), status["target"].get("containerID", ""),
        )  # fmt: skip
        client = await self.accounts.client(NAMESPACE, "usbdra-agent", node)
        reports = PlugReports(client, USBA)
        task = asyncio.create_task(reports.run())
        reports.attached(record, None if record.container else Address(0, 3))
        try:
            await self.attachment(
                "AttachedToPod" if record.container else "AttachedToVirtualMachine"
            )
        finally:
            task.cancel()
            await asyncio.wait([task])

    def end(self, pod: str) -> None:
        """A kubelet has ended the pod."""
        words = ["-n", self.namespace, "delete", "pod", pod, "--grace-period=0", "--force"]
        self.api.kubectl(*words, "--ignore-not-found")


@asynccontextmanager
async def controller(accounts: Accounts) -> AsyncIterator[None]:
    """A whole controller with its own account, leading."""
    client = await accounts.client(NAMESPACE, "usbdra-controller")
    machines = MachineSettings(image="localhost/usbdra:0", mirror=True)
    options = ControllerOptions(identity="one", namespace=NAMESPACE, machines=machines)
    task = asyncio.create_task(run_parts(Office(client, options), factories(options)))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest_asyncio.fixture
async def lab(
    api: ClusterApi, accounts: Accounts, make_node: MakeNode, namespace: str
) -> AsyncIterator[Lab]:
    admin = await accounts.admin()
    label = {f"{GROUP}/usbip": "true"}
    nodes = [
        PublishingNode(admin, make_node(name, label), Visibility.CLUSTER)
        for name in ("node-a", "node-b")
    ]
    made = Lab(api, admin, accounts, namespace)
    async with controller(accounts):
        await nodes[0].publish(offer())
        await nodes[1].publish(offer("usb-1d6b-0104-port-2-0a0b0c0d"))
        await until(admin, NUSB, STICK, has("Ready", "Ready"))
        await admin.merge(NUSB, STICK, {"spec": {"assignedNamespace": namespace}})
        await until(admin, NUSB, STICK, has("Assigned", "Assigned"))
        yield made
        for item in (await admin.list(VM, namespace))["items"]:
            await admin.delete(VM, item["metadata"]["name"], namespace)
        for item in (await admin.list(USBA, namespace))["items"]:
            await admin.delete(USBA, item["metadata"]["name"], namespace)
        api.kubectl("-n", namespace, "delete", "pods", "--all", "--grace-period=0", "--force")
        async with asyncio.timeout(60):
            while (await admin.list(USBA, namespace))["items"]:
                await asyncio.sleep(0.1)
    api.kubectl("delete", "nusb,resourceslices", "--all")


def shown(machine: Object) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in entry.items() if key != "conditions"}
        for entry in machine.get("status", {}).get("usbDevices", [])
    ]


async def test_a_machines_list_becomes_devices_in_it_and_out_again_in_order(lab: Lab) -> None:
    await lab.run("vm-1", "node-b")
    lab.machine(STICK)
    holder = await lab.holder("node-b")
    await lab.fetched(holder)
    await lab.plugged("node-b")
    attached = {
        "name": STICK, "attached": True, "ready": True, "hotplugged": True,
        "address": {"bus": 0, "port": 3},
    }  # fmt: skip
    await until(lab.admin, VM, "vm", lambda vm: bool(vm and shown(vm) == [attached]), lab.namespace)
    await until(lab.admin, NUSB, STICK, has("Attached", "AttachedToVirtualMachine"))
    lab.machine()
    pod = await until(
        lab.admin, POD, holder, lambda p: p is None or "deletionTimestamp" in p["metadata"],
        lab.namespace,
    )  # fmt: skip
    assert pod["metadata"]["name"] == holder  # its kubelet ends it, and the agent unplugs first
    (attachment,) = (await lab.admin.list(USBA, lab.namespace))["items"]
    assert attachment["metadata"]["finalizers"] == [f"{GROUP}/detach"]
    lab.end(holder)
    await until(lab.admin, USBA, attachment["metadata"]["name"], lambda a: a is None, lab.namespace)
    assert not await exists(lab.admin, RESOURCE_CLAIM, holder, lab.namespace)
    await until(lab.admin, NUSB, STICK, has("Attached", "Available"))
    await until(lab.admin, VM, "vm", lambda vm: bool(vm and not shown(vm)), lab.namespace)


async def test_r66_a_machine_that_moves_is_detached_there_before_it_is_attached_here(
    lab: Lab,
) -> None:
    await lab.run("vm-1", "node-b")
    lab.machine(STICK)
    first = await lab.holder("node-b")
    await lab.fetched(first)
    await lab.plugged("node-b")
    await lab.run("vm-2", "node-a")
    lab.end("vm-1")
    await until(
        lab.admin, POD, first, lambda p: bool(p and "deletionTimestamp" in p["metadata"]),
        lab.namespace,
    )  # fmt: skip
    holders = (await lab.admin.list(POD, lab.namespace, labels=CONTRACT.attachment_key))["items"]
    assert [pod["metadata"]["name"] for pod in holders] == [first]
    lab.end(first)
    second = await lab.holder("node-a")
    claim = await until(
        lab.admin, RESOURCE_CLAIM, second,
        lambda c: bool(((c or {}).get("status") or {}).get("reservedFor")), lab.namespace,
    )  # fmt: skip
    used = {r["pool"] for r in claim["status"]["allocation"]["devices"]["results"]}
    assert used == {"usb-node-a", "usblink-node-a"}
    lab.end("vm-2")
    await until(
        lab.admin, POD, second, lambda p: p is None or "deletionTimestamp" in p["metadata"],
        lab.namespace,
    )  # fmt: skip
    lab.end(second)


async def test_a_running_pod_gets_a_device_in_each_life_of_its_container(lab: Lab) -> None:
    await lab.app("app", "node-b", 1)
    body = {
        "apiVersion": USBA.api_version,
        "kind": USBA.kind,
        "metadata": {"name": "one"},
        "spec": {"device": STICK, "pod": {"name": "app"}},
    }
    lab.api.apply(body, lab.namespace)
    holder = await lab.holder("node-b")
    await lab.fetched(holder)
    await lab.plugged("node-b")
    await lab.app("app", "node-b", 2)
    again = await until(
        lab.admin, USBA, "one",
        lambda a: bool(a and a["status"]["target"].get("containerID", "").endswith("2")),
        lab.namespace,
    )  # fmt: skip
    assert again["status"]["target"]["container"] == "main"
    assert "socket" not in again["status"]["target"]
    await lab.attachment("InProgress")
    await lab.plugged("node-b")
    lab.end("app")
    await until(
        lab.admin, POD, holder, lambda p: p is None or "deletionTimestamp" in p["metadata"],
        lab.namespace,
    )  # fmt: skip
    lab.end(holder)
    await until(lab.admin, USBA, "one", has("Ready", "NotRunning"), lab.namespace)


async def test_the_api_refuses_a_list_that_cannot_be(lab: Lab) -> None:
    for devices, words in (
        ([STICK, STICK], "duplicate entries for key"),
        ([f"usb-{n}" for n in range(9)], "must have at most 8 items"),
    ):
        with pytest.raises(Exception, match=words):
            lab.machine(*devices)


async def test_an_agent_speaks_of_plugs_on_its_own_node_and_of_nothing_else(lab: Lab) -> None:
    await lab.run("vm-1", "node-b")
    lab.machine(STICK)
    holder = await lab.holder("node-b")
    attachment = await lab.attachment("InProgress")
    name, uid = attachment["metadata"]["name"], attachment["metadata"]["uid"]
    plug = {"podUID": "x", "claimUID": "y", "attached": True}

    async def say(node: str, status: Object) -> None:
        client = await lab.accounts.client(NAMESPACE, "usbdra-agent", node)
        await client.apply(
            USBA, {"metadata": {"name": name, "uid": uid}, "status": status},
            manager="usbdra-agent", namespace=lab.namespace, subresource="status",
        )  # fmt: skip

    with pytest.raises(errors.ApiForbidden, match="on its own node alone"):
        await say("node-a", {"plug": plug})
    with pytest.raises(errors.ApiError, match=r"writes status\.plug of an attachment"):
        await say("node-b", {"target": {**attachment["status"]["target"], "uid": "another"}})
    await say("node-b", {"plug": plug})
    seen = await lab.admin.get(USBA, name, lab.namespace)
    assert condition(seen, "Attached")[0] == "False"  # of another pod: it is not believed
    lab.end(holder)
