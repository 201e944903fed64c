# SPDX-License-Identifier: Apache-2.0
"""One control plane without nodes for these benchmarks, in a network namespace of its own."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from bench.cluster.machine import NODE, Machine
from tests.bed.clusterbin import cluster_binary
from tests.bed.net import HOST_IP4, Network
from tests.cluster.api import ClusterApi
from tests.cluster.controlplane import ControlPlane


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.api)
            item.add_marker(pytest.mark.timeout(1800))


@dataclass(frozen=True)
class Plane:
    """A running API server: its namespace, an access file that works in there, a client."""

    namespace: str
    kubeconfig: Path
    api: ClusterApi


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A control plane that knows one node, by name only."""
    binary, folder = cluster_binary(), tmp_path_factory.mktemp("control-plane")
    network = Network(f"usbdra-bench-{secrets.token_hex(3)}")
    network.up()
    try:
        with ControlPlane(binary, network.name, folder, HOST_IP4) as running:
            api = ClusterApi(running.admin_kubeconfig, (str(binary), "kubectl"))
            api.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
            yield Plane(network.name, _from_inside(running, folder), api)
            api.close()
    finally:
        network.down()


@pytest.fixture
def machine(plane: Plane) -> Iterator[Machine]:
    """A machine without devices, its agent not started."""
    with Machine(plane.namespace, plane.kubeconfig) as made:
        yield made


def _from_inside(running: ControlPlane, folder: Path) -> Path:
    """The administrator's access file with the address that is right inside the namespace."""
    access = yaml.safe_load(running.admin_kubeconfig.read_text())
    for cluster in access["clusters"]:
        assert urlsplit(cluster["cluster"]["server"]).hostname == "127.0.0.1"
        cluster["cluster"]["server"] = running.server
    path = folder / "inside.kubeconfig"
    path.write_text(yaml.safe_dump(access))
    path.chmod(0o600)
    return path
