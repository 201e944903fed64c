# SPDX-License-Identifier: Apache-2.0
"""One control plane without nodes for these benchmarks, with the chart's rights and one Node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bench.cluster.machine import NODE, Account
from bench.cluster.pair import EXPORTER, IMPORTER, SERIALS, STICKS
from bench.prepare.claims import Allocated
from tests.api import chart
from tests.api.accounts import Accounts
from tests.bed.net import HOST_IP4
from tests.cluster.alone import add_node, control_plane_alone
from tests.cluster.api import ClusterApi

RIGHTS = frozenset({"ServiceAccount", "ClusterRole", "ClusterRoleBinding"})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.api)
            item.add_marker(pytest.mark.timeout(1800))


@dataclass(frozen=True)
class Plane:
    """A running API server: its network namespace, and what a pod of the agent has to reach it."""

    namespace: str
    account: Account
    api: ClusterApi


@pytest.fixture(scope="session")
def plane() -> Iterator[Plane]:
    """A control plane that knows one Node, by name only."""
    with control_plane_alone() as cluster, chart.installed(cluster.api, only=is_right):
        add_node(cluster.api, NODE, {})
        server = urlsplit(cluster.plane.server)
        token = Accounts(cluster, cluster.folder).token(chart.NAMESPACE, "usbdra-agent", NODE)
        ca = cluster.plane.identity(NODE, HOST_IP4).ca_pem
        account = Account(str(server.hostname), str(server.port or 443), token, ca.decode())
        yield Plane(cluster.folder.name, account, cluster.api)


def is_right(manifest: chart.Manifest) -> bool:
    """What the agent's account may do, and the account."""
    return manifest["kind"] in RIGHTS


@pytest.fixture(scope="session")
def claims(plane: Plane) -> Iterator[list[dict[str, str]]]:
    """Claims of node b of pair.py for node a's sticks; both nodes are at 127.0.0.1."""
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
    for node in (EXPORTER, IMPORTER):
        add_node(plane.api, node, {})
        plane.api.core.patch_node_status(node, {"status": {"addresses": addresses}})
    pool = f"usb-{EXPORTER}"
    named = zip(STICKS, SERIALS, strict=True)
    sticks = [{"pool": pool, "device": stick, "serial": serial} for stick, serial in named]
    allocated = Allocated(plane.api, IMPORTER)
    try:
        yield allocated.make(sticks)
    finally:
        allocated.remove()


@pytest.fixture(scope="session")
def claim(claims: list[dict[str, str]]) -> dict[str, str]:
    """The first of them."""
    return claims[0]
