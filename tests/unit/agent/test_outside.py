# SPDX-License-Identifier: Apache-2.0
"""A node's way to a host outside: the controller's grant, and what the host makes of it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from tests.fakes.kube import FakeKube
from tests.unit.slices.samples import offer
from usbdra.agent import outside
from usbdra.agent.options import AgentOptions
from usbdra.agent.outside import OutsideHosts
from usbdra.controller.granting import LIFETIME, Granting
from usbdra.controller.requests import Requests
from usbdra.controller.review import NODE_NAME, NODE_UID, Rules
from usbdra.errors import NotFound, Refused
from usbdra.exporter.broker import GrantRequest, Peer
from usbdra.exporter.outside import GrantGuard
from usbdra.kube.custom import Contract
from usbdra.kube.errors import ApiUnavailable
from usbdra.kube.types import CSR, NODE, RESOURCE_CLAIM, Kind, Object
from usbdra.pki.authority import Pair, make_authority
from usbdra.plugin.contracts import Order
from usbdra.state.claims import ClaimRef
from usbdra.transport.tls import peer_certificate
from usbdra.types import ClaimUid, DeviceName, Hub, NodeName
from usbdra.usbip.extension import ClaimRef as WireClaim

NAMES = Contract("example.com")
NOW = datetime.now(UTC)
CA = make_authority("usbdra CA", NOW)
USER = "system:serviceaccount:usbdra:usbdra-agent"
STICK = offer("stick")
REF = ClaimRef("lab", "stick", ClaimUid("uid-1"))
ORDER = Order(REF, DeviceName("stick"), NodeName("outside/pi"), Hub.HIGH, None, True)
CLAIM = WireClaim("lab", "stick", ClaimUid("uid-1"))


class Api(FakeKube):
    """As the API server it says of each request who asks, from which node."""

    asker = "node-b"

    async def create(self, kind: Kind, body: Object, namespace: str | None = None) -> Object:
        if kind == CSR:
            uid = self.objects[NODE.plural, "", self.asker]["metadata"]["uid"]
            extra = {NODE_NAME: [self.asker], NODE_UID: [uid]}
            body = {**body, "spec": {**body["spec"], "username": USER, "extra": extra}}
        return await super().create(kind, body, namespace)


def claim(**changes: Any) -> Object:
    fields = [{"key": "metadata.name", "operator": "In", "values": ["node-b"]}]
    result = {
        "request": "usb", "driver": NAMES.driver, "pool": "usb-outside/pi", "device": "stick",
    } | changes  # fmt: skip
    return {
        "metadata": {"namespace": "lab", "name": "stick", "uid": "uid-1"},
        "status": {
            "allocation": {
                "devices": {"results": [result]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
            }
        },
    }


def device(namespace: str) -> Object:
    status = {"host": "pi", "attributes": {"name": "stick"}}
    return {"metadata": {"name": "stick"}, "spec": {"assignedNamespace": namespace},
            "status": status}  # fmt: skip


@pytest.fixture
def api() -> Api:
    made = Api()
    for node in ("node-b", "node-c"):
        made.put(NODE, {"metadata": {"name": node}})
    made.put(NAMES.host, {"metadata": {"name": "pi"}, "spec": {"address": "192.0.2.7"}})
    made.put(NAMES.node_device, device("lab"))
    made.put(RESOURCE_CLAIM, claim())
    return made


@asynccontextmanager
async def controller(api: Api) -> AsyncIterator[None]:
    async def signing() -> Pair:
        return CA

    rules = Rules(NAMES.key("usbdra-grant"), USER)
    look = Granting(api, NAMES, rules, "Required").look
    part = Requests(api, rules.signer, look, signing, LIFETIME, clock=lambda: NOW)
    task = asyncio.create_task(part.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


class Dialled(Exception):
    """Instead of a connection."""


@pytest.fixture
def hosts(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OutsideHosts:
    async def dial(address: str, port: int, **how: Any) -> None:
        raise Dialled(address, port, how["expect"])

    monkeypatch.setattr(outside, "dial", dial)
    (tmp_path / "ca.crt").write_bytes(CA.cert_pem())
    options = AgentOptions(node=NodeName("node-b"), pod_uid="x", group="example.com")
    return OutsideHosts(api, options, lambda: tmp_path, patience=5.0)


def shown(api: Api) -> Peer:
    """The peer that the host sees, by the certificate that was signed last."""
    status = api.all(CSR)[-1]["status"]
    cert = x509.load_pem_x509_certificate(base64.b64decode(status["certificate"]))
    assert cert.not_valid_after_utc <= NOW + timedelta(minutes=5)
    names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    found = peer_certificate({"subjectAltName": tuple(("URI", uri) for uri in uris)})
    return Peer("192.0.2.9", 1, found.node, True, "", found.uris)


async def test_the_claims_node_is_granted_the_device_and_the_host_gives_it(
    api: Api, hosts: OutsideHosts
) -> None:
    async with controller(api):
        with pytest.raises(Dialled) as dialled:
            await hosts.dial(ORDER, "pi")
    assert dialled.value.args == ("192.0.2.7", 3241, "outside/pi")
    peer = shown(api)
    assert peer.node == "node-b"
    await GrantGuard("pi").authorise(STICK, GrantRequest("stick", CLAIM), peer)


async def test_a_grant_is_for_one_device_of_one_host_and_one_claim(
    api: Api, hosts: OutsideHosts
) -> None:
    async with controller(api):
        with pytest.raises(Dialled):
            await hosts.dial(ORDER, "pi")
    peer, request = shown(api), GrantRequest("stick", CLAIM)
    guard = GrantGuard("pi")
    for other in (
        guard.authorise(offer("disk", busid="1-9"), GrantRequest("disk", CLAIM), peer),
        guard.authorise(STICK, GrantRequest("stick", replace(CLAIM, uid=ClaimUid("x"))), peer),
        GrantGuard("lab-pc").authorise(STICK, request, peer),
        guard.authorise(STICK, request, replace(peer, uris=())),
    ):
        with pytest.raises(Refused, match="node node-b shows no grant of the cluster"):
            await other
    lister = replace(peer, node=NodeName("cluster/controller"))
    with pytest.raises(Refused, match="to nodes of the cluster alone"):
        await guard.authorise(STICK, request, lister)
    with pytest.raises(Refused, match="only for a ResourceClaim"):
        await guard.authorise(STICK, GrantRequest("stick"), peer)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("another node", "was given to node node-b, not to node-c"),
        ("no claim", "does not exist"),
        ("another device", "was not given device stick of node outside/pi"),
        ("a node's device", "was not given device stick of node outside/pi"),
        ("admin access", "was not given device stick of node outside/pi"),
        ("another namespace", "assigned to another namespace than lab"),
        ("nobody's", "is not assigned to a namespace"),
        ("not known", "not known yet which namespace"),
    ],
)
async def test_no_grant_without_the_claim_that_has_the_device(
    api: Api, hosts: OutsideHosts, tmp_path: Path, change: str, text: str
) -> None:
    claims = {
        "another device": claim(device="disk"),
        "a node's device": claim(pool="usb-pi"),
        "admin access": claim(adminAccess=True),
    }
    devices = {"another namespace": device("other"), "nobody's": device("")}
    if change in claims:
        api.put(RESOURCE_CLAIM, claims[change])
    elif change in devices:
        api.put(NAMES.node_device, devices[change])
    elif change == "not known":
        api.drop(NAMES.node_device, "stick")
    elif change == "no claim":
        api.drop(RESOURCE_CLAIM, "stick", "lab")
    else:
        api.asker = "node-c"
        options = AgentOptions(node=NodeName("node-c"), pod_uid="x", group="example.com")
        hosts = OutsideHosts(api, options, lambda: tmp_path, patience=5.0)
    async with controller(api):
        with pytest.raises(Refused, match=text):
            await hosts.dial(ORDER, "pi")


async def test_a_node_is_granted_nothing_in_anothers_name(api: Api, hosts: OutsideHosts) -> None:
    api.asker = "node-c"
    async with controller(api):
        with pytest.raises(Refused, match="the request is for node-b, the token of node node-c"):
            await hosts.dial(ORDER, "pi")


async def test_a_host_without_an_object_and_a_controller_that_is_away_are_said(
    api: Api, hosts: OutsideHosts, tmp_path: Path
) -> None:
    with pytest.raises(NotFound, match="host lab-pc has no USBExporterHost"):
        await hosts.dial(replace(ORDER, node=NodeName("outside/lab-pc")), "lab-pc")
    options = AgentOptions(node=NodeName("node-b"), pod_uid="x", group="example.com")
    hurried = OutsideHosts(api, options, lambda: tmp_path, patience=0.01)
    with pytest.raises(ApiUnavailable, match="is usbdra controller running"):
        await hurried.dial(ORDER, "pi")
