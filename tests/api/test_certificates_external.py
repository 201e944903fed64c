# SPDX-License-Identifier: Apache-2.0
"""Certificates that somebody else's signer signs, as cert-manager does: we check and approve."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.api.accounts import Accounts
from tests.api.chart import GROUP, NAMESPACE, installed
from tests.api.test_certificates import WAIT, node, ours, running  # noqa: F401 a fixture
from tests.cluster.api import ClusterApi
from usbdra.agent.certificate import CertificateOptions, NodeCertificate
from usbdra.controller.issuing import CertificateSettings, Issuing
from usbdra.kube import errors
from usbdra.kube.client import KubeClient
from usbdra.kube.types import CONFIG_MAP, CSR, SECRET
from usbdra.pki import authority, held, request, sets, trust
from usbdra.types import NodeName

SIGNER = "clusterissuers.cert-manager.io/usbdra"
VALUES = {"agent.certificates.mode": "CertManager", "agent.certificates.signerName": SIGNER}


@pytest.fixture(scope="module", autouse=True)
def rights(api: ClusterApi) -> Iterator[None]:
    with installed(api, VALUES, ours):
        yield


async def sign_as_cert_manager(admin: KubeClient, ca: authority.Pair) -> None:
    """Sign the first request for the signer that is approved, with its own names."""
    listed = await admin.list(CSR, fields=f"spec.signerName={SIGNER}")
    seen = {item["metadata"]["name"] for item in listed["items"]}
    version = listed["metadata"]["resourceVersion"]
    async for _, item in admin.watch(CSR, version, fields=f"spec.signerName={SIGNER}"):
        conditions = (item.get("status") or {}).get("conditions") or ()
        if item["metadata"]["name"] in seen or not conditions:
            continue
        assert [one["type"] for one in conditions] == ["Approved"]
        asked = request.read_request(base64.b64decode(item["spec"]["request"]))
        cert = authority.sign_node(
            ca, asked.node, asked.addresses, asked.public_key, datetime.now(UTC),
            timedelta(seconds=item["spec"]["expirationSeconds"]), asked.node_uid,
        )  # fmt: skip
        item["status"]["certificate"] = base64.b64encode(trust.write_bundle([cert])).decode()
        await admin.replace(CSR, item, subresource="status")
        return


async def test_the_controller_approves_and_another_signs(
    accounts: Accounts,
    node: str,  # noqa: F811 the fixture
    tmp_path: Path,
) -> None:
    admin = await accounts.admin()
    ca = authority.make_authority("somebody's CA", datetime.now(UTC))
    bundle = {"metadata": {"name": "usbdra-trust"}, "data": {"ca.crt": ca.cert_pem().decode()}}
    await admin.create(CONFIG_MAP, {"apiVersion": "v1", "kind": "ConfigMap", **bundle}, NAMESPACE)
    controller = Issuing(
        await accounts.client(NAMESPACE, "usbdra-controller"),
        NAMESPACE,
        GROUP,
        CertificateSettings(signer=SIGNER),
    )
    client = await accounts.client(NAMESPACE, "usbdra-agent", node)
    options = CertificateOptions(NodeName(node), tmp_path, SIGNER, NAMESPACE)
    agent = NodeCertificate(client, options, backoff=(0.2, 1.0))
    signing = asyncio.create_task(sign_as_cert_manager(admin, ca))
    async with running(controller, agent), asyncio.timeout(WAIT):
        await agent.ready.wait()
        await signing
    found = held.read_held(tmp_path / sets.CURRENT)
    assert found is not None
    assert trust.holds(found.pair.cert, [ca.cert], datetime.now(UTC))
    with pytest.raises(errors.ApiNotFound):  # no CA of ours was made
        await admin.get(SECRET, "usbdra-ca", NAMESPACE)
    await admin.delete(CONFIG_MAP, "usbdra-trust", NAMESPACE)
