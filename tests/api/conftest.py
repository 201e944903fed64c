# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests against a control plane alone.

`plane` starts once a run: etcd, API server, scheduler, controller manager, default gates. Objects
of the cluster's scope outlive a test unless it removes them: give them names of their own.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from kubernetes import client

from tests.api.accounts import Accounts
from tests.api.image import unpacked
from tests.cluster import driver
from tests.cluster.alone import Alone, add_node, control_plane_alone
from tests.cluster.api import ClusterApi
from tests.cluster.usbdra_image import NAME, usbdra_archive

HERE = Path(__file__).parent
# The control plane's start counts into the first test, and a first build of it too.
TEST_SECONDS = 1500

MakeNode = Callable[..., str]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs the control plane and has its time limit."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.api)
            item.add_marker(pytest.mark.timeout(TEST_SECONDS))


@pytest.fixture(scope="session")
def plane() -> Iterator[Alone]:
    """The control plane with the default gates."""
    with control_plane_alone() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def api(plane: Alone) -> ClusterApi:
    """kubectl and typed clients of an administrator."""
    return plane.api


@pytest.fixture(scope="session")
def image_archive() -> Path:
    """The archive that the bed's nodes get."""
    return usbdra_archive(driver.VERSION)


@pytest.fixture(scope="session")
def image_root(image_archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """That image's file system; a test that changes it changes it back."""
    name = f"{NAME}:{driver.VERSION}"
    with unpacked(image_archive, name, tmp_path_factory.mktemp("image")) as root:
        yield root


@pytest.fixture
def namespace(api: ClusterApi) -> Iterator[str]:
    """A namespace of the test's own, with its default service account, deleted afterwards."""
    name = f"test-{secrets.token_hex(4)}"
    api.core.create_namespace({"metadata": {"name": name}})
    api.wait(
        api.core.list_namespaced_service_account,
        lambda found: True if found else None,
        f"service account {name}/default",
        namespace=name,
    )
    yield name
    api.core.delete_namespace(name)
    # No kubelet ends these pods, and while they are there their claims are in use.
    for pod in api.core.list_namespaced_pod(name).items:
        with contextlib.suppress(client.ApiException):  # gone meanwhile
            api.core.delete_namespaced_pod(pod.metadata.name, name, grace_period_seconds=0)


@pytest.fixture
def make_node(api: ClusterApi) -> Iterator[MakeNode]:
    """make_node(name="", labels={}) -> name: Nodes without machines, deleted afterwards.

    They say they are ready, so that the scheduler places pods there; no kubelet starts them.
    """
    made: list[str] = []

    def make(name: str = "", labels: dict[str, str] | None = None) -> str:
        name = name or f"node-{secrets.token_hex(4)}"
        add_node(api, name, labels or {})
        made.append(name)
        return name

    yield make
    for name in made:
        try:
            api.core.delete_node(name)
        except client.ApiException as error:
            if error.status != 404:  # the test may have removed it
                raise


@pytest_asyncio.fixture
async def accounts(plane: Alone, tmp_path: Path) -> AsyncIterator[Accounts]:
    """Clients of service accounts: `await accounts.client(namespace, name, node)`."""
    made = Accounts(plane, tmp_path)
    yield made
    await made.aclose()
