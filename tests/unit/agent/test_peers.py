# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from typing import Any

import pytest

from tests.fakes.certificates import certificates
from tests.fakes.kube import FakeKube
from tests.unit.plugin.records import device, record
from tests.unit.slices.samples import offer
from tests.waiting import patience
from usbdra.agent import peers
from usbdra.agent.addresses import NodeAddresses
from usbdra.agent.peers import ClaimGuard, Dialler
from usbdra.errors import DeviceBusy, NotAuthenticated, NotFound, Refused, Unreachable
from usbdra.exporter import fence
from usbdra.exporter.broker import GrantRequest, Peer
from usbdra.kube import errors
from usbdra.kube.types import NODE, RESOURCE_CLAIM, Kind, Object
from usbdra.plugin.contracts import Order
from usbdra.state.claims import ClaimRef as HolderRef
from usbdra.state.exports import Session
from usbdra.transport.ktls import Encryption
from usbdra.transport.tls import LateIdentity, TlsFiles
from usbdra.types import ClaimUid, DeviceName, Hub, NodeName
from usbdra.usbip.extension import ClaimRef

DRIVER = "usb.example.com"
STICK = offer("stick")
CLAIM = ClaimRef("lab", "stick", ClaimUid("uid-1"))
B = Peer("10.0.0.2", 4242, NodeName("node-b"))
SESSION = Session("key", "claim lab/stick of node-b", CLAIM, NodeName("node-b"))


def claim(node: str = "node-b", uid: str = "uid-1") -> dict[str, Any]:
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    result = {"request": "usb", "driver": DRIVER, "pool": "usb-node-a", "device": "stick"}
    return {
        "metadata": {"namespace": "lab", "name": "stick", "uid": uid},
        "status": {
            "allocation": {
                "devices": {"results": [result]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
            }
        },
    }


def guard(api: FakeKube, holder: HolderRef | None = None) -> ClaimGuard:
    held = {DeviceName("stick"): holder}
    return ClaimGuard(api, DRIVER, NodeName("node-a"), held.get)


async def test_a_claim_of_the_peer_opens_the_device() -> None:
    api = FakeKube()
    api.put(RESOURCE_CLAIM, claim())
    await guard(api).authorise(STICK, GrantRequest("stick", CLAIM), B)
    assert not await guard(api).outlived(STICK.name, SESSION)


async def test_a_claim_of_another_namespace_opens_nothing_whatever_it_was_allocated() -> None:
    """The second line of the fence, and the only one against a device named in parameters."""
    api = FakeKube()
    stored = claim()
    devices = stored["status"]["allocation"]["devices"]
    devices["results"][0] |= {"pool": "usblink-node-b", "device": "vhci-high"}
    parameters = {"device": {"name": "stick", "node": "node-a"}}
    devices["config"] = [{"opaque": {"driver": DRIVER, "parameters": parameters}}]
    api.put(RESOURCE_CLAIM, stored)

    def fenced(assigned: str) -> ClaimGuard:
        def allowed(device: DeviceName, namespace: str) -> None:
            fence.require(device, namespace, assigned, required=False)

        return ClaimGuard(api, DRIVER, NodeName("node-a"), lambda _: None, allowed)

    for assigned in ("lab", ""):
        await fenced(assigned).authorise(STICK, GrantRequest("stick", CLAIM), B)
    with pytest.raises(Refused, match="assigned to another namespace than lab"):
        await fenced("other").authorise(STICK, GrantRequest("stick", CLAIM), B)


@pytest.mark.parametrize("named", [False, True], ids=["allocated", "named in parameters"])
async def test_admin_access_looks_and_is_given_nothing(named: bool) -> None:
    api = FakeKube()
    stored = claim()
    devices = stored["status"]["allocation"]["devices"]
    devices["results"][0]["adminAccess"] = True
    if named:
        devices["results"][0] |= {"pool": "usblink-node-b", "device": "vhci-high"}
        parameters = {"device": {"name": "stick", "node": "node-a"}}
        devices["config"] = [{"opaque": {"driver": DRIVER, "parameters": parameters}}]
    api.put(RESOURCE_CLAIM, stored)
    with pytest.raises(Refused, match="was not given device stick of node node-a"):
        await guard(api).authorise(STICK, GrantRequest("stick", CLAIM), B)


async def test_an_earlier_node_of_the_peers_name_gets_nothing() -> None:
    api = FakeKube()
    api.put(RESOURCE_CLAIM, claim())
    uid = api.put(NODE, {"metadata": {"name": "node-b"}})["metadata"]["uid"]
    nodes = NodeAddresses(api)
    same = ClaimGuard(api, DRIVER, NodeName("node-a"), lambda _: None, same_node=nodes.require_same)
    request = GrantRequest("stick", CLAIM)
    await same.authorise(STICK, request, replace(B, node_uid=uid))
    await same.authorise(STICK, request, B)  # a certificate from files names no Node object
    with pytest.raises(Refused, match="of an earlier node named node-b"):
        await same.authorise(STICK, request, replace(B, node_uid="another"))


async def test_r47_a_device_that_a_claim_of_this_node_holds_is_refused_by_name() -> None:
    api = FakeKube()
    api.put(RESOURCE_CLAIM, claim())
    holder = HolderRef("lab", "other", ClaimUid("uid-2"))
    with pytest.raises(DeviceBusy, match="claim lab/other"):
        await guard(api, holder).authorise(STICK, GrantRequest("stick", CLAIM), B)


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        (None, "does not exist"),
        (claim(uid="uid-9"), "does not exist"),
        (claim(node="node-c"), "given to node node-c"),
    ],
    ids=["gone", "another of its name", "moved"],
)
async def test_r48_a_claim_that_lost_the_device_opens_nothing_and_ends_its_session(
    stored: dict[str, Any] | None, text: str
) -> None:
    api = FakeKube()
    if stored:
        api.put(RESOURCE_CLAIM, stored)
    with pytest.raises(Refused, match=text):
        await guard(api).authorise(STICK, GrantRequest("stick", CLAIM), B)
    assert await guard(api).outlived(STICK.name, SESSION)


async def test_nobody_without_a_name_or_a_claim_gets_anything() -> None:
    api = FakeKube()
    with pytest.raises(Refused, match="authenticated"):
        await guard(api).authorise(STICK, GrantRequest("stick", CLAIM), Peer("10.0.0.2", 1))
    with pytest.raises(Refused, match="only for a ResourceClaim"):
        await guard(api).authorise(STICK, GrantRequest("stick"), B)


async def test_an_api_that_is_away_ends_no_session() -> None:
    api = FakeKube()
    api.fail(errors.ApiUnavailable("get", 503, "ServiceUnavailable", "down"))
    assert not await guard(api).outlived(STICK.name, SESSION)
    assert not await guard(FakeKube()).outlived(STICK.name, Session("key", "a person"))


class Nodes:
    """Where nodes answer; stands in for importer/dial.py."""

    def __init__(self) -> None:
        self.at = {"10.0.0.1": "node-a"}
        self.dialled: list[str] = []

    async def dial(self, host: str, port: int, *, expect: str, **_: object) -> Nodes:
        self.dialled.append(host)
        if host not in self.at:
            raise Unreachable(f"{host} does not answer")
        if self.at[host] != expect:
            raise NotAuthenticated(f"{host} is not {expect}")
        return self

    async def grant(self, device: str, *, claim: ClaimRef) -> str:
        return f"{device} for {claim.name}"

    encrypted = True
    timings = ()
    closed = 0

    def close(self) -> None:
        self.closed += 1

    def take_socket(self) -> str:
        return "socket"

    async def __aenter__(self) -> Nodes:
        return self

    async def __aexit__(self, *_: object) -> None: ...


def node_at(address: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "node-a"},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }


def order_of(node: str) -> Order:
    ref = HolderRef("lab", "stick", ClaimUid("uid-1"))
    return Order(ref, DeviceName("stick"), NodeName(node), Hub.HIGH, None, True)


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    made = Nodes()
    monkeypatch.setattr(peers, "dial", made.dial)
    return made


@pytest.fixture
def dialler() -> Dialler:
    api = FakeKube()
    api.put(NODE, node_at("10.0.0.1"))
    return Dialler(api, lambda: None, 3241, Encryption.REQUIRED)  # type: ignore[arg-type,return-value]


async def test_a_link_made_ready_is_the_one_that_is_asked_over(
    nodes: Nodes, dialler: Dialler
) -> None:
    order = order_of("node-a")
    with dialler.reaching(order.claim.uid, order.node):
        await asyncio.sleep(0.01)
        assert nodes.dialled == ["10.0.0.1"]
        await dialler.connect(order)
        assert nodes.dialled == ["10.0.0.1"]
        await dialler.connect(order)  # the claim's second device has a link of its own
    assert nodes.dialled == ["10.0.0.1", "10.0.0.1"]
    assert nodes.closed == 0


async def test_a_link_made_ready_that_nobody_asks_over_is_closed(
    nodes: Nodes, dialler: Dialler
) -> None:
    order = order_of("node-a")
    with dialler.reaching(order.claim.uid, order.node):
        await asyncio.sleep(0.01)
    await asyncio.sleep(0)
    assert nodes.closed == 1
    with dialler.reaching(order.claim.uid, NodeName("node-x")):  # it has no address
        await asyncio.sleep(0.01)
    assert nodes.closed == 1


async def test_a_link_made_ready_too_long_ago_is_not_relied_on(
    nodes: Nodes, dialler: Dialler, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = order_of("node-a")
    monkeypatch.setattr(peers, "FRESH_SECONDS", 0.0)
    with dialler.reaching(order.claim.uid, order.node):
        await dialler.connect(order)
    assert nodes.dialled == ["10.0.0.1", "10.0.0.1"]
    assert nodes.closed == 1


async def test_a_node_that_cannot_be_reached_is_the_error_of_who_asks(
    nodes: Nodes, dialler: Dialler
) -> None:
    order = order_of("node-a")
    nodes.at = {}
    with (
        pytest.raises(Unreachable, match=r"10\.0\.0\.1 does not answer"),
        dialler.reaching(order.claim.uid, order.node),
    ):
        await dialler.connect(order)


async def test_a_nodes_address_is_read_once_and_again_when_the_node_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api, nodes, reads = FakeKube(), Nodes(), 0
    read = api.get

    async def counted(*args: Any) -> Any:
        nonlocal reads
        reads += 1
        return await read(*args)

    monkeypatch.setattr(api, "get", counted)
    monkeypatch.setattr(peers, "dial", nodes.dial)
    api.put(NODE, node_at("10.0.0.1"))
    dialler = Dialler(api, lambda: None, 3241, Encryption.REQUIRED)  # type: ignore[arg-type,return-value]
    order = order_of("node-a")
    for _ in range(2):
        assert str((await dialler.connect(order)).device) == "stick for stick"
    assert reads == 1
    # moved, and another node has the old address
    nodes.at = {"10.0.0.1": "node-c", "10.0.0.9": "node-a"}
    api.put(NODE, node_at("10.0.0.9"))
    nodes.dialled.clear()
    for _ in range(2):
        await dialler.connect(order)
    assert nodes.dialled == ["10.0.0.1", "10.0.0.9", "10.0.0.9"]
    # away: one read says that it should be there, and the peer's error is the answer
    nodes.at = {}
    with pytest.raises(Unreachable, match=r"10\.0\.0\.9 does not answer"):
        await dialler.connect(order)


async def test_the_certificate_is_read_once_for_all_links(nodes: Nodes) -> None:
    """Each reading makes contexts with memory of their own; a failed dial held it until Python
    collected it."""
    api, read = FakeKube(), 0
    api.put(NODE, node_at("10.0.0.1"))

    def files() -> TlsFiles:
        nonlocal read
        read += 1
        return TlsFiles.in_directory(certificates().b)

    dialler = Dialler(api, LateIdentity(files), 3241, Encryption.REQUIRED)
    await dialler.connect(order_of("node-a"))
    nodes.at = {}
    for _ in range(3):
        with pytest.raises(Unreachable):
            await dialler.connect(order_of("node-a"))
    assert read == 1


async def test_r23_with_our_own_cable_out_the_node_is_dialled_where_it_was(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the node nor the API server answers: the address is kept and nobody waits long."""

    class Away(FakeKube):
        away = False

        async def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object:
            if self.away:
                await asyncio.Event().wait()
            return await super().get(kind, name, namespace)

    api = Away()
    api.put(NODE, node_at("10.0.0.1"))
    monkeypatch.setattr(peers, "ADDRESS_SECONDS", 0.01)
    dialler = Dialler(api, lambda: None, 3241, Encryption.REQUIRED)  # type: ignore[arg-type,return-value]
    await dialler.connect(order_of("node-a"))
    api.away, nodes.at = True, {}
    with pytest.raises(Unreachable, match=r"10\.0\.0\.1 does not answer"):
        await dialler.connect(order_of("node-a"))
    nodes.at = {"10.0.0.1": "node-a"}
    await dialler.connect(order_of("node-a"))
    assert set(nodes.dialled) == {"10.0.0.1"}


async def test_a_node_is_knocked_at_until_it_answers(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "KNOCK_SECONDS", 0.02)
    api = FakeKube()
    api.put(NODE, node_at("127.0.0.1"))
    nodes.at = {"127.0.0.1": "node-a"}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    dialler = Dialler(api, lambda: None, port, Encryption.REQUIRED)  # type: ignore[arg-type,return-value]
    assert not await dialler.answers(NodeName("node-a"))  # nobody was ever reached there
    await dialler.connect(order_of("node-a"))
    waiting = asyncio.create_task(dialler.answers(NodeName("node-a")))
    await asyncio.sleep(0.03)
    assert not waiting.done()
    with socket.create_server(("127.0.0.1", port)):
        async with patience():
            assert await waiting


async def test_only_nodes_whose_device_a_claim_lacks_are_waited_for(
    dialler: Dialler, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def answers(node: NodeName) -> bool:
        asked.append(node)
        return node == "a"

    monkeypatch.setattr(dialler, "answers", answers)
    here, there = device(node=NodeName("c"), request="held"), device(held=None)
    assert await dialler.answers_for(record(here, there))
    assert asked == ["a"]
    assert not await dialler.answers_for(record(device(held=None, node=NodeName("silent"))))
    assert not await dialler.answers_for(record(here))
    assert not await dialler.answers_for(None)


async def test_without_the_kind_there_are_no_hosts_outside(dialler: Dialler) -> None:
    with pytest.raises(NotFound, match="outside the cluster"):
        await dialler.connect(order_of("outside/pi"))


@pytest.mark.parametrize("name", ["outside/pi", "cluster/controller"])
async def test_who_is_no_node_has_no_claims(name: str) -> None:
    api = FakeKube()
    stored = claim()
    del stored["status"]["allocation"]["nodeSelector"]  # good for every node
    api.put(RESOURCE_CLAIM, stored)
    with pytest.raises(Refused, match="is no node of the cluster"):
        await guard(api).authorise(
            STICK, GrantRequest("stick", CLAIM), Peer("::1", 1, NodeName(name))
        )
