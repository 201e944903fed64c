# SPDX-License-Identifier: Apache-2.0
"""`kubectl usb` on a real API server with the controller at work."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.api.accounts import Accounts
from tests.api.chart import GROUP
from tests.api.conftest import MakeNode
from tests.api.devices import PublishingNode, has, until
from tests.api.test_controller_devices import (
    NUSB,
    STICK,
    admin,
    chart,
    controller,
    pod,
    reserved,
)
from tests.bed.clusterbin import cluster_binary
from tests.cluster.alone import Alone
from tests.cluster.api import ClusterApi
from tests.unit.slices.samples import offer
from usbdra.kube.client import KubeClient
from usbdra.kube.types import POD, RESOURCE_CLAIM

__all__ = ["admin", "chart"]  # fixtures

Run = Callable[..., Awaitable[str]]


@pytest.fixture
def usb(plane: Alone, tmp_path: Path) -> Run:
    """Run `kubectl usb`, the plugin found by its name; its output, or what it says on failure.

    What begins with `__complete` is kubectl's own way to ask for words.
    """
    for name, module in (("kubectl-usb", "program"), ("kubectl_complete-usb", "completion")):
        plugin = tmp_path / name
        start = f"from usbdra.cli.kubectl.{module} import main; main()"
        plugin.write_text(f"#!{sys.executable}\n{start}\n")
        plugin.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "KUBECONFIG": str(plane.plane.admin_kubeconfig),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }

    async def run(*words: str) -> str:
        completes = words[0] == "__complete"
        command = ["__complete", "usb", *words[1:]] if completes else ["usb", *words]
        process = await asyncio.create_subprocess_exec(
            str(cluster_binary()), "kubectl", *command,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=environment,
        )  # fmt: skip
        output, _ = await process.communicate()
        return output.decode()

    return run


async def test_a_day_of_an_administrator(
    usb: Run,
    api: ClusterApi,
    accounts: Accounts,
    admin: KubeClient,
    make_node: MakeNode,
    namespace: str,
) -> None:
    nodes = [PublishingNode(admin, make_node(name)) for name in ("node-a", "node-b")]
    await nodes[0].publish(offer())
    await nodes[1].publish()
    async with controller(accounts):
        await until(admin, NUSB, STICK, has("Ready", "Ready"))
        assert (await usb("devices")).splitlines() == [
            "NAME                         NODE     READY   ASSIGNED   ATTACHED   NAMESPACE",
            f"{STICK}   node-a   True    False      False",
        ]
        assert (await usb("devices", "-o", "name")).split() == [f"nodeusbdevice.{GROUP}/{STICK}"]
        lines = (await usb("__complete", "assign", "usb-")).splitlines()
        assert lines.index(STICK) + 1 == lines.index(":4")
        said = await usb("assign", STICK, "-n", namespace)
        assert said == f"{STICK}: namespace {namespace} may use the device\n"
        (device,) = json.loads(await usb("devices", "-n", namespace, "-o", "json"))
        assert device["status"]["attributes"]["serial"] == "60A44C413FAE"

        await admin.create(POD, pod("user", "node-b"), namespace)
        await until(admin, RESOURCE_CLAIM, STICK, reserved, namespace)
        (row,) = (await usb("claims", "-n", namespace)).splitlines()[1:]
        assert row.split() == [namespace, STICK, STICK, "node-a", "Allocated", "user"]
        ports = [line.split() for line in (await usb("ports")).splitlines()[1:]]
        assert ["node-b", "high", "1", "7", f"{namespace}/{STICK}"] in ports
        said = await usb("explain", "user", "-n", namespace)
        assert said.startswith(
            f"Claim {namespace}/{STICK} has device {STICK} of node node-a, and the node of pod "
            "user has not attached it yet"
        )
        api.kubectl("-n", namespace, "delete", "pod", "user", "--grace-period=0", "--force")
        said = await usb("unassign", STICK)
        assert said == f"{STICK}: no namespace may use the device\n"


async def test_mistakes_are_one_clear_line(
    usb: Run, accounts: Accounts, admin: KubeClient, namespace: str
) -> None:
    assert "neither pod/NAME nor claim/NAME" in await usb("explain", "node/x")
    assert 'pods "nobody" not found' in await usb("explain", "nobody", "-n", namespace)
    assert "not found" in await usb("assign", "no-such-device", "-n", namespace)


async def test_no_secret_of_the_cluster_is_in_a_support_bundle(
    usb: Run, api: ClusterApi, namespace: str, tmp_path: Path
) -> None:
    planted = "s3cr3t-Planted"
    env = [{"name": "PASSWORD", "value": planted}]
    container = {"name": "agent", "image": "none", "env": env, "args": [f"--token={planted}"]}
    labels = {"app.kubernetes.io/name": "usbdra"}
    meta = {"labels": labels, "annotations": {"note": planted}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    daemons = {"selector": {"matchLabels": labels}, "template": template}
    parameters = {"driver": GROUP, "parameters": {"password": planted}}
    claim = {"devices": {"config": [{"opaque": parameters}]}}
    api.apply(
        [
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {**meta, "name": "usbdra-ca"},
                "stringData": {"tls.key": planted},
            },
            {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "metadata": {**meta, "name": "usbdra-agent"},
                "spec": daemons,
            },
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {**meta, "name": "agent"},
                "spec": {"containers": [container]},
            },
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {**meta, "name": "c"},
                "spec": claim,
            },
        ],
        namespace,
    )
    path = tmp_path / "bundle.tar.gz"
    said = await usb("support-bundle", "-f", str(path), "--driver-namespace", namespace)
    assert said.splitlines()[-1] == str(path)
    with gzip.open(path) as file:
        content = file.read()
    assert planted.encode() not in content
    for word in (b'"usbdra-agent"', b'"name": "c"', b"v1.3"):
        assert word in content
