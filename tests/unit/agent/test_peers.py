# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.fakes.kube import FakeKube
from tests.unit.slices.samples import offer
from usbdra.agent.addresses import NodeAddresses
from usbdra.agent.peers import ClaimGuard
from usbdra.errors import DeviceBusy, Refused
from usbdra.exporter import fence
from usbdra.exporter.broker import GrantRequest, Peer
from usbdra.kube import errors
from usbdra.kube.types import NODE, RESOURCE_CLAIM
from usbdra.state.claims import ClaimRef as HolderRef
from usbdra.state.exports import Session
from usbdra.types import ClaimUid, DeviceName, NodeName
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
