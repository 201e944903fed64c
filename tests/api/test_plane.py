# SPDX-License-Identifier: Apache-2.0
"""The control plane alone: its fixtures, and what an older API server does to new fields."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from kubernetes import client

from tests.api.accounts import Accounts
from tests.api.conftest import MakeNode
from tests.cluster.alone import control_plane_alone
from tests.cluster.api import ClusterApi
from tests.cluster.manifests import links_slice
from usbdra.kube import errors
from usbdra.kube.types import NAMESPACE, RESOURCE_CLAIM

GATES = {"DRAConsumableCapacity": False}


def test_a_nodes_token_names_the_node(
    api: ClusterApi, accounts: Accounts, make_node: MakeNode, namespace: str
) -> None:
    node = make_node()
    token = accounts.token(namespace, "default", node)
    review = client.V1TokenReview(spec=client.V1TokenReviewSpec(token=token))
    user = api.authentication.create_token_review(review).status.user
    assert user.username == f"system:serviceaccount:{namespace}:default"
    assert user.extra["authentication.kubernetes.io/node-name"] == [node]


async def test_the_products_client_has_the_rights_of_its_account(
    accounts: Accounts, namespace: str
) -> None:
    admin = await accounts.admin()
    assert (await admin.get(NAMESPACE, namespace))["metadata"]["name"] == namespace
    account = await accounts.client(namespace, "default")
    with pytest.raises(errors.ApiForbidden):
        await account.list(RESOURCE_CLAIM, namespace)


@pytest.fixture(scope="module")
def old_api() -> Iterator[ClusterApi]:
    """An API server with the gate off."""
    with control_plane_alone(GATES) as cluster:
        yield cluster.api


def test_the_server_drops_the_fields_silently(old_api: ClusterApi) -> None:
    old_api.apply(links_slice("a-links", "a", "bed.example.com"))
    stored = json.loads(old_api.kubectl("get", "resourceslice", "a-links", "-o", "json"))
    (device,) = stored["spec"]["devices"]
    assert device["capacity"] == {"ports": {"value": "8"}}
    assert "allowMultipleAllocations" not in device
