# SPDX-License-Identifier: Apache-2.0
"""Node certificates on the real API: our rights, its filling in of the requester, its checks."""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.api.accounts import Accounts
from tests.api.chart import GROUP, NAMESPACE, installed
from tests.api.conftest import MakeNode
from tests.cluster.api import ClusterApi
from usbdra.agent.certificate import CertificateOptions, NodeCertificate
from usbdra.controller.issuing import CertificateSettings, Issuing
from usbdra.kube import errors
from usbdra.kube.client import KubeClient
from usbdra.kube.signing import USAGES
from usbdra.kube.types import CONFIG_MAP, CSR, NODE, SECRET, Object
from usbdra.pki import held, sets, trust
from usbdra.pki.authority import new_key
from usbdra.pki.request import make_request
from usbdra.types import NodeName

SIGNER = f"{GROUP}/usbdra-node"
ADDRESS = "192.0.2.10"
WAIT = 30


def ours(item: dict[str, Any]) -> bool:
    name = item["metadata"]["name"]
    return item["kind"] == "ServiceAccount" or name == "usbdra-agent" or "certificates" in name


@pytest.fixture(scope="module", autouse=True)
def rights(api: ClusterApi) -> Iterator[None]:
    """The chart's accounts with the agent's rights and those for certificates."""
    with installed(api, {"agent.certificates.mode": "Cluster"}, ours):
        yield


@pytest.fixture
def node(api: ClusterApi, make_node: MakeNode) -> str:
    name = make_node()
    address = {"type": "InternalIP", "address": ADDRESS}
    api.core.patch_node_status(name, {"status": {"addresses": [address]}})
    return name


@pytest_asyncio.fixture
async def controller(accounts: Accounts, api: ClusterApi) -> AsyncIterator[KubeClient]:
    """The controller's part with its own account; the CA goes with the test."""
    client = await accounts.client(NAMESPACE, "usbdra-controller")
    settings = CertificateSettings(signer=SIGNER, settle=timedelta(seconds=2))
    async with running(Issuing(client, NAMESPACE, GROUP, settings)):
        yield client
    for kind in ("secret/usbdra-ca", "configmap/usbdra-trust"):
        api.kubectl("-n", NAMESPACE, "delete", kind, "--ignore-not-found")


@asynccontextmanager
async def running(*parts: Issuing | NodeCertificate) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(part.run()) for part in parts]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def agent(accounts: Accounts, node: str, path: Path) -> NodeCertificate:
    client = await accounts.client(NAMESPACE, "usbdra-agent", node)
    options = CertificateOptions(NodeName(node), path, SIGNER, NAMESPACE)
    return NodeCertificate(client, options, backoff=(0.2, 1.0))


async def ask(
    client: KubeClient, admin: KubeClient, pem: bytes, usages: list[str] | None = None
) -> Object:
    """Send a request and return its conditions' only one, once it has one."""
    name = f"test-{secrets.token_hex(4)}"
    spec = {
        "request": base64.b64encode(pem).decode(),
        "signerName": SIGNER,
        "usages": USAGES if usages is None else usages,
    }
    body = {"apiVersion": CSR.api_version, "kind": CSR.kind, "metadata": {"name": name}}
    made = await client.create(CSR, {**body, "spec": spec})
    async with asyncio.timeout(WAIT):
        watch = admin.watch(
            CSR, made["metadata"]["resourceVersion"], fields=f"metadata.name={name}"
        )
        async for _, item in watch:
            if conditions := (item.get("status") or {}).get("conditions"):
                assert not item["status"].get("certificate")
                return dict(conditions[0])
    raise AssertionError("the watch ended")


async def test_an_agent_gets_a_certificate_that_names_its_node(
    controller: KubeClient, accounts: Accounts, node: str, tmp_path: Path
) -> None:
    part = await agent(accounts, node, tmp_path)
    async with running(part), asyncio.timeout(WAIT):
        await part.ready.wait()
    found = held.read_held(tmp_path / sets.CURRENT)
    assert found is not None
    admin = await accounts.admin()
    uid = (await admin.get(NODE, node))["metadata"]["uid"]
    bundle = trust.read_bundle(found.bundle, "bundle")
    begin, end = found.pair.cert.not_valid_before_utc, found.pair.cert.not_valid_after_utc
    assert (end - begin) == timedelta(hours=24, minutes=5)
    due = held.renew_at(
        found.pair.cert, bundle, begin, node=node, node_uid=uid, addresses=(ADDRESS,), part=0.5
    )
    assert due == begin + (end - begin) / 2, "it is what the node needs"


async def test_others_are_denied_with_the_reason(
    controller: KubeClient,
    accounts: Accounts,
    node: str,
    make_node: MakeNode,
    api: ClusterApi,
) -> None:
    """A fake agent, an unbound token, another account, another node's name, foreign addresses."""
    admin = await accounts.admin()
    uid = (await admin.get(NODE, node))["metadata"]["uid"]
    real = await accounts.client(NAMESPACE, "usbdra-agent", node)
    other = await accounts.client(NAMESPACE, "usbdra-agent", make_node())
    unbound = await accounts.client(NAMESPACE, "usbdra-agent")
    good = make_request(new_key(), node, uid, [ADDRESS])
    for client, pem, usages, says in (
        (admin, good, None, "only system:serviceaccount:usbdra:usbdra-agent may ask"),
        (unbound, good, None, "token does not name its node"),
        (other, good, None, f"is for node {node}, the token of node"),
        (real, make_request(new_key(), node, uid, ["192.0.2.11"]), None, "is no InternalIP"),
        (real, make_request(new_key(), node, "other", []), None, "another node named"),
        (real, make_request(new_key(), "node-x", uid, []), None, "is for node node-x"),
        (real, good, ["client auth", "digital signature"], "usages must be"),
        (real, good, [*USAGES, "cert sign"], "usages must be"),
    ):
        answer = await ask(client, admin, pem, usages)
        assert (answer["type"], answer["reason"]) == ("Denied", "Refused"), says
        assert says in answer["message"]


async def test_a_node_that_was_made_anew_is_not_the_old_one(
    controller: KubeClient, accounts: Accounts, node: str, api: ClusterApi
) -> None:
    admin = await accounts.admin()
    uid = (await admin.get(NODE, node))["metadata"]["uid"]
    client = await accounts.client(NAMESPACE, "usbdra-agent", node)
    api.core.delete_node(node)
    api.core.create_node({"metadata": {"name": node}})
    # The token of the old node is not valid any more (KEP-4193): it cannot even ask.
    with pytest.raises(errors.ApiForbidden):
        await ask(client, admin, make_request(new_key(), node, uid, []))


async def test_the_ca_rotates_under_agents(
    controller: KubeClient, accounts: Accounts, node: str, tmp_path: Path, api: ClusterApi
) -> None:
    """Asked for by an annotation: both CAs are believed before the new one signs."""
    part = await agent(accounts, node, tmp_path)
    async with running(part):
        async with asyncio.timeout(WAIT):
            await part.ready.wait()
        first = await bundle_of(tmp_path, 1)
        api.kubectl(
            "-n", NAMESPACE, "annotate", "secret/usbdra-ca", f"{GROUP}/rotate=now"
        )  # fmt: skip
        both = await bundle_of(tmp_path, 2)
        assert first[0] in both
        admin = await accounts.admin()
        async with asyncio.timeout(WAIT):
            while "previous.crt" not in (await admin.get(SECRET, "usbdra-ca", NAMESPACE))["data"]:
                await asyncio.sleep(0.2)
        # An agent that comes now gets the new CA's; the old one's certificates still hold.
        second = await agent(accounts, node, tmp_path / "second")
        async with running(second), asyncio.timeout(WAIT):
            await second.ready.wait()
    found = held.read_held(tmp_path / "second" / sets.CURRENT)
    old = held.read_held(tmp_path / sets.CURRENT)
    assert found is not None
    assert old is not None
    (new,) = set(both) - set(first)
    now = found.pair.cert.not_valid_before_utc
    assert trust.holds(found.pair.cert, [new], now)
    assert trust.holds(old.pair.cert, trust.read_bundle(found.bundle, "bundle"), now)


async def bundle_of(path: Path, count: int) -> tuple[Any, ...]:
    """What the node believes, once it is so many CAs."""
    async with asyncio.timeout(WAIT):
        while True:
            found = held.read_held(path / sets.CURRENT)
            bundle = trust.read_bundle(found.bundle, "bundle") if found else ()
            if len(bundle) == count:
                return bundle
            await asyncio.sleep(0.1)


async def test_an_agent_can_do_nothing_else(
    controller: KubeClient, accounts: Accounts, node: str
) -> None:
    client = await accounts.client(NAMESPACE, "usbdra-agent", node)
    with pytest.raises(errors.ApiForbidden):
        await client.get(SECRET, "usbdra-ca", NAMESPACE)
    with pytest.raises(errors.ApiForbidden):
        await client.merge(CONFIG_MAP, "usbdra-trust", {"data": {}}, namespace=NAMESPACE)
    with pytest.raises(errors.ApiForbidden):
        await client.list(CONFIG_MAP, NAMESPACE)
    admin = await accounts.admin()
    uid = (await admin.get(NODE, node))["metadata"]["uid"]
    name = f"test-{secrets.token_hex(4)}"
    request = base64.b64encode(make_request(new_key(), node, uid, [])).decode()
    spec = {"request": request, "signerName": f"{GROUP}/nobody", "usages": USAGES}
    body = {"apiVersion": CSR.api_version, "kind": CSR.kind, "metadata": {"name": name}}
    made = await client.create(CSR, {**body, "spec": spec})
    condition = {"type": "Approved", "status": "True", "reason": "Me", "message": "me"}
    with pytest.raises(errors.ApiForbidden):
        await client.replace(
            CSR, {**made, "status": {"conditions": [condition]}}, subresource="approval"
        )
    # The controller approves and signs for its own signer alone.
    with pytest.raises(errors.ApiForbidden, match="permitted to approve"):
        await controller.replace(
            CSR, {**made, "status": {"conditions": [condition]}}, subresource="approval"
        )
