# SPDX-License-Identifier: Apache-2.0
"""An API server without consumable capacity: what the driver's fallback has to notice."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator

import pytest

from tests.bed.clusterbin import cluster_binary
from tests.bed.net import HOST_IP4, Network
from tests.cluster.api import ClusterApi
from tests.cluster.controlplane import ControlPlane
from tests.cluster.manifests import links_slice

GATES = {"DRAConsumableCapacity": False}


@pytest.fixture(scope="module")
def old_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterApi]:
    """A control plane without nodes and with the gate off."""
    binary, folder = cluster_binary(), tmp_path_factory.mktemp("control-plane")
    network = Network(f"usbdra-plane-{secrets.token_hex(3)}")
    network.up()
    try:
        with ControlPlane(binary, network.name, folder, HOST_IP4, GATES) as plane:
            api = ClusterApi(plane.admin_kubeconfig, (str(binary), "kubectl"))
            yield api
            api.close()
    finally:
        network.down()


def test_the_server_drops_the_fields_silently(old_api: ClusterApi) -> None:
    old_api.apply(links_slice("a-links", "a", "bed.example.com"))
    stored = json.loads(old_api.kubectl("get", "resourceslice", "a-links", "-o", "json"))
    (device,) = stored["spec"]["devices"]
    assert device["capacity"] == {"ports": {"value": "8"}}
    assert "allowMultipleAllocations" not in device
