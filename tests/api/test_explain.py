# SPDX-License-Identifier: Apache-2.0
"""`kubectl usb explain` on causes as API server, scheduler and controller make them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.api.accounts import Accounts
from tests.api.conftest import MakeNode
from tests.api.devices import PublishingNode, has, until
from tests.api.test_controller_devices import (
    CONTRACT,
    NUSB,
    STICK,
    admin,
    assign,
    chart,
    controller,
    pod,
    report,
    reserved,
)
from tests.cluster.alone import Alone
from tests.cluster.api import ClusterApi
from tests.unit.cli.kubectl.make import by_cel
from tests.unit.slices.samples import offer
from usbdra.agent.reporter import KubeReporter
from usbdra.cli.kubectl.program import program
from usbdra.cli.main import run
from usbdra.kube.client import KubeClient
from usbdra.kube.types import DEVICE_CLASS, NODE, POD, RESOURCE_CLAIM
from usbdra.slices.build import Taint, Visibility
from usbdra.state.claims import ClaimRef
from usbdra.types import ClaimUid, Hub, NodeName, Speed

__all__ = ["admin", "chart"]  # fixtures

Explain = Callable[[str], Awaitable[str]]
LABEL = {f"{CONTRACT.group}/usbip": "true"}


@pytest.fixture
def explain(plane: Alone, namespace: str, capsys: pytest.CaptureFixture[str]) -> Explain:
    """The paragraph about a pod or claim of the test's namespace."""

    async def call(target: str) -> str:
        words = ["explain", target, "-n", namespace]
        words += ["--kubeconfig", str(plane.plane.admin_kubeconfig)]
        code = await asyncio.to_thread(run, words, program, "kubectl usb")
        out, err = capsys.readouterr()
        assert (code, err) == (0, "")
        return str(out).strip()

    return call


async def pending(admin: KubeClient, name: str, namespace: str) -> None:
    """Wait until the scheduler has tried the pod."""
    await until(admin, POD, name, has("PodScheduled", "Unschedulable"), namespace)


async def waiting(admin: KubeClient, name: str, spec: dict[str, Any], namespace: str) -> None:
    """A claim of this name and spec, and a pod of the same name that waits for it."""
    await admin.create(RESOURCE_CLAIM, {"metadata": {"name": name}, "spec": spec}, namespace)
    claims = [{"name": "usb", "resourceClaimName": name}]
    container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "usb"}]}}
    body = {"containers": [container], "resourceClaims": claims}
    await admin.create(POD, {"metadata": {"name": name}, "spec": body}, namespace)
    await pending(admin, name, namespace)


async def test_what_assignments_and_nodes_do_to_a_claim(
    explain: Explain, accounts: Accounts, admin: KubeClient, make_node: MakeNode, namespace: str
) -> None:
    node = PublishingNode(admin, make_node("node-a", LABEL), Visibility.CLUSTER)
    make_node("node-c", LABEL)
    await node.publish(offer())
    serial = by_cel("serial=60A44C413FAE")
    async with controller(accounts):
        await until(admin, NUSB, STICK, has("Ready", "Ready"))
        await assign(admin, namespace)
        await until(admin, NUSB, STICK, has("Assigned", "Assigned"))
        # no agent on the pod's node; then no such node
        await admin.create(POD, pod("far", "node-c"), namespace)
        await pending(admin, "far", namespace)
        assert "node node-c offers no high-speed port: its agent does not run" in await explain(
            "far"
        )
        await admin.create(POD, pod("nowhere", "node-x"), namespace)
        await pending(admin, "nowhere", namespace)
        assert "node node-x, where the pod must run, does not exist" in await explain("nowhere")
        # not ready; gone
        down = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        stored = await admin.get(NODE, "node-a")
        kept = stored["status"]["conditions"]
        await admin.merge(NODE, "node-a", down, subresource="status")
        await until(admin, NUSB, STICK, has("Ready", "NotReady"))
        said = await explain(f"claim/{STICK}")
        assert said == (
            f"Claim {namespace}/{STICK} waits for device {STICK}: node node-a is not ready "
            "(NotReady); see what is wrong with the node (kubectl describe node node-a)."
        )
        back = {"status": {"conditions": kept}}
        await admin.merge(NODE, "node-a", back, subresource="status")
        await node.publish()
        await until(admin, NUSB, STICK, has("Ready", "NotFound"))
        assert "no node has the device; it was last plugged into node node-a (NotFound); plug" in (
            await explain(f"claim/{STICK}")
        )
        # another namespace, none
        await node.publish(offer())
        await until(admin, NUSB, STICK, has("Ready", "Ready"))
        await assign(admin, "kube-public", force=True)
        await until(admin, NUSB, STICK, has("Assigned", "Assigned"))
        await admin.create(
            RESOURCE_CLAIM, {"metadata": {"name": "mine"}, "spec": serial}, namespace
        )
        said = await explain("claim/mine")
        assert "it is assigned to namespace kube-public; who may assign devices" in said
        await assign(admin, "")
        await until(admin, NUSB, STICK, has("Assigned", "Available"))
        await node.publish(offer(), taints=(Taint(CONTRACT.key("unassigned"), ""),))
        assert "it is assigned to no namespace; who may assign" in await explain("claim/mine")
        # assigned here, and the claim does not tolerate it
        await assign(admin, namespace)
        await until(admin, NUSB, STICK, has("Assigned", "Assigned"))
        await node.publish(offer(), taints=(Taint(CONTRACT.key("assigned"), namespace),))
        assert f"taint {CONTRACT.key('assigned')}={namespace}:NoSchedule" in (
            await explain("claim/mine")
        )


async def test_what_ports_speed_and_other_claims_do_to_a_claim(
    explain: Explain, api: ClusterApi, accounts: Accounts, admin: KubeClient, make_node: MakeNode,
    namespace: str,
) -> None:  # fmt: skip
    a, b = (PublishingNode(admin, make_node(n, LABEL), Visibility.CLUSTER) for n in "ab")
    slow = offer("usb-slow", serial="SLOW", speed=Speed.FULL, exportable=False, reason="12 Mbit/s")
    await a.publish(offer(), offer("usb-two", serial="TWO"), slow)
    await b.publish(ports={Hub.HIGH: 1})
    async with controller(accounts):
        await until(admin, NUSB, "usb-slow", has("Ready", "Ready"))
        for name in (STICK, "usb-two", "usb-slow"):
            await admin.merge(NUSB, name, {"spec": {"assignedNamespace": namespace}})
            await until(admin, NUSB, name, has("Assigned", "Assigned"))
        await admin.create(POD, pod("user", "b"), namespace)
        claim = await until(admin, RESOURCE_CLAIM, STICK, reserved, namespace)
        for name, device, cause in (
            ("full", "usb-two", "no high-speed port is free on node b (NoFreeUSBIPPort): all 1 "),
            ("slow", "usb-slow", "at 12 Mbit/s it is too slow to cross nodes, and the pod must "),
        ):
            body = pod(name, "b")
            body["spec"]["resourceClaims"][0]["resourceClaimName"] = device
            await admin.create(POD, body, namespace)
            await pending(admin, name, namespace)
            assert cause in await explain(name)
        await waiting(admin, "again", by_cel("serial=60A44C413FAE"), namespace)
        assert f"claim {namespace}/{STICK} has it, used by user" in await explain("again")
        # what the node says of the claim that has it
        assert "the node of pod user has not attached it yet" in await explain("user")
        reporter = KubeReporter(admin, CONTRACT.driver, NodeName("b"))
        ref = ClaimRef(namespace, STICK, ClaimUid(claim["metadata"]["uid"]))
        await reporter.event(ref, "Unreachable", "nobody answers at 192.0.2.1", True)
        await reporter.flushed()
        assert (
            "the node of pod user could not attach it. Unreachable: nobody answers at 192.0.2.1; "
            "see that node a and its agent run"
        ) in await explain("user")
        for reason, remedy in (
            ("PeerRefused", "see whether the device is assigned to this namespace"),
            ("LinkLost", "its node tries again by itself"),
        ):
            report(api, namespace, claim, "False", reason)
            said = await explain("user")
            assert f"and it cannot be used now ({reason}): as reported; {remedy}" in said
        report(api, namespace, claim, "True", "Attached")
        assert (await explain("user")).endswith("and it is attached: as reported.")


async def test_what_is_written_in_pods_and_claims(
    explain: Explain, admin: KubeClient, make_node: MakeNode, namespace: str
) -> None:
    make_node("a", LABEL)
    await waiting(admin, "typo", by_cel(device_class="typo"), namespace)
    assert "names DeviceClass typo, which does not exist; make it" in await explain("typo")
    await waiting(admin, "none", by_cel("serial=NONE"), namespace)
    assert "waits for a USB device with serial NONE, and no device that" in await explain("none")
    resource = "usb.example.com/explained"
    selector = f"device.driver == '{CONTRACT.driver}' && "
    selector += f"device.attributes['{CONTRACT.driver}'].kind == 'usb'"
    spec = {"extendedResourceName": resource, "selectors": [{"cel": {"expression": selector}}]}
    await admin.create(DEVICE_CLASS, {"metadata": {"name": "explained"}, "spec": spec})
    try:
        limits = {"limits": {resource: "1"}}
        body = {"containers": [{"name": "main", "image": "none", "resources": limits}]}
        await admin.create(POD, {"metadata": {"name": "x"}, "spec": body}, namespace)
        await pending(admin, "x", namespace)
        assert await explain("x") == (
            f"Pod {namespace}/x waits for a USB device, and there is none for you to see; see "
            "what nodes have: kubectl usb devices."
        )
    finally:
        await admin.delete(DEVICE_CLASS, "explained")
