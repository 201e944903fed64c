# SPDX-License-Identifier: Apache-2.0
"""A release's life by Helm itself: install, upgrade, uninstall with its Job.

No kubelet runs the Job's pod: the test does what is in it, with the pod's account, and says that
it has ended.
"""

from __future__ import annotations

import asyncio
import secrets
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client

from tests.api.accounts import Accounts
from tests.bed.clusterbin import helm_binary
from tests.cluster.api import ClusterApi
from tests.cluster.driver import CHART
from tests.cluster.manifests import links_slice
from usbdra.slices.withdraw import Installation, withdraw

# Of its own: kinds of the default group may be there from other tests and are not Helm's.
GROUP = "helm.example.com"
DRIVER = f"usb.{GROUP}"
JOB = "app.kubernetes.io/component=withdraw"


class Helm:
    """The command on one release in a namespace of its own."""

    def __init__(self, api: ClusterApi) -> None:
        self.namespace = f"usbdra-{secrets.token_hex(3)}"
        self._kubeconfig = str(api.kubeconfig)

    def __call__(self, verb: str, *words: str) -> str:
        """Run it; raises CalledProcessError with what it said."""
        command = [str(helm_binary()), verb, "usbdra", *words, "--namespace", self.namespace]
        command += ["--kubeconfig", self._kubeconfig]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def helm(api: ClusterApi) -> Iterator[Helm]:
    """A release, and a slice that its agents would have published for every node."""
    helm = Helm(api)
    # without policies an administrator may write slices of a driver
    values = f"group={GROUP},policies.enabled=false"
    said = helm("install", str(CHART), "--create-namespace", "--set", values)
    assert f"kubectl get nodes -L {GROUP}/usbip" in said
    api.apply(links_slice(helm.namespace, "a", DRIVER))
    yield helm
    api.delete(links_slice(helm.namespace, "a", DRIVER))
    api.kubectl("delete", "crd", "-l", "app.kubernetes.io/managed-by=Helm")
    api.core.delete_namespace(helm.namespace)


def slices(api: ClusterApi) -> list[Any]:
    return list(api.resource.list_resource_slice(field_selector=f"spec.driver={DRIVER}").items)


def jobs(api: ClusterApi, helm: Helm) -> list[Any]:
    return list(client.BatchV1Api(api.client).list_namespaced_job(helm.namespace).items)


async def do_the_job(api: ClusterApi, accounts: Accounts, helm: Helm) -> int:
    """What the Job's pod does, once it is there; returns how many slices were deleted."""
    pods = await asyncio.to_thread(
        api.wait,
        api.core.list_namespaced_pod,
        lambda found: found or None,
        "the Job's pod",
        namespace=helm.namespace,
        label_selector=JOB,
    )
    what = Installation(
        driver=DRIVER, namespace=helm.namespace, daemon_set="usbdra-agent", agents="none=none"
    )
    account = await accounts.client(helm.namespace, pods[0].spec.service_account_name)
    gone = await withdraw(account, what, patience=30)
    ended = {"status": {"phase": "Succeeded"}}
    api.core.patch_namespaced_pod_status(pods[0].metadata.name, helm.namespace, ended)
    return gone


async def test_an_uninstall_takes_the_slices_an_upgrade_does_not(
    api: ClusterApi, accounts: Accounts, helm: Helm
) -> None:
    helm("upgrade", str(CHART), "--set", f"group={GROUP}", "--set", "agent.logLevel=debug")
    assert jobs(api, helm) == []
    assert len(slices(api)) == 1
    async with asyncio.TaskGroup() as group:
        gone = group.create_task(do_the_job(api, accounts, helm))
        group.create_task(asyncio.to_thread(helm, "uninstall", "--timeout", "120s"))
    assert gone.result() == 1
    assert slices(api) == []
    assert jobs(api, helm) == []
    assert client.AppsV1Api(api.client).list_namespaced_daemon_set(helm.namespace).items == []
    roles = api.kubectl("get", "clusterroles", "-o", "name")
    assert "usbdra" not in roles
