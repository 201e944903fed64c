# SPDX-License-Identifier: Apache-2.0
"""Who gets a node's certificate: the agent of that node, for its own names, and nobody else."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from usbdra.controller.review import Rules, requester, review
from usbdra.errors import Refused
from usbdra.kube.addresses import internal_addresses
from usbdra.pki.authority import new_key
from usbdra.pki.request import make_request

RULES = Rules("example.com/usbdra-node", requester("usbdra", "usbdra-agent"))
UID = "6a3d2a6e-6f2f-4e8e-9c56-0f2c35b6d9f1"


def node(name: str = "node-a", uid: str = UID) -> dict[str, Any]:
    addresses = [
        {"type": "InternalIP", "address": "10.0.0.5"},
        {"type": "InternalIP", "address": "FD00::5"},
        {"type": "ExternalIP", "address": "192.0.2.7"},
        {"type": "Hostname", "address": name},
    ]
    return {"metadata": {"name": name, "uid": uid}, "status": {"addresses": addresses}}


def csr(pem: bytes | None = None, **changes: Any) -> dict[str, Any]:
    pem = pem or make_request(new_key(), "node-a", UID, ["10.0.0.5"])
    spec: dict[str, Any] = {
        "signerName": RULES.signer,
        "username": RULES.requester,
        "usages": ["digital signature", "client auth", "server auth"],
        "extra": {
            "authentication.kubernetes.io/node-name": ["node-a"],
            "authentication.kubernetes.io/node-uid": [UID],
        },
        "request": base64.b64encode(pem).decode(),
    }
    return {"metadata": {"name": "one"}, "spec": {**spec, **changes}}


def test_an_agent_gets_its_nodes_certificate() -> None:
    pem = make_request(new_key(), "node-a", UID, ["fd00::5", "10.0.0.5"])
    request = review(csr(pem), node(), RULES)
    assert (request.node, request.node_uid) == ("node-a", UID)
    assert request.addresses == ("fd00::5", "10.0.0.5")


def test_only_internal_addresses_count_each_once() -> None:
    found = node()
    found["status"]["addresses"].append({"type": "InternalIP", "address": "not an address"})
    found["status"]["addresses"].append({"type": "InternalIP", "address": "10.0.0.5"})
    assert internal_addresses(found) == ("10.0.0.5", "fd00::5")
    assert internal_addresses({}) == ()


EXTRA_NAME = "authentication.kubernetes.io/node-name"
EXTRA_UID = "authentication.kubernetes.io/node-uid"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"username": "system:serviceaccount:usbdra:default"}, "only system:serviceaccount:usbdra"),
        ({"username": "system:serviceaccount:other:usbdra-agent"}, "only system:serviceaccount"),
        ({"username": "kubernetes-admin"}, "only system:serviceaccount"),
        ({"signerName": "kubernetes.io/kubelet-serving"}, "this signer is"),
        ({"extra": {}}, "does not name its node"),
        ({"extra": None}, "does not name its node"),
        ({"extra": {EXTRA_NAME: ["node-a"]}}, "does not name its node"),
        ({"extra": {EXTRA_NAME: ["node-a", "node-b"], EXTRA_UID: [UID]}}, "does not name its node"),
        ({"extra": {EXTRA_NAME: ["node-b"], EXTRA_UID: [UID]}}, "is for node node-a, the token of"),
        ({"extra": {EXTRA_NAME: ["node-a"], EXTRA_UID: ["other"]}}, "an earlier node named node-a"),
        ({"usages": ["digital signature", "client auth"]}, "usages must be"),
        ({"usages": ["digital signature", "client auth", "server auth", "cert sign"]}, "usages"),
        ({"usages": ["digital signature", "client auth", "client auth"]}, "usages must be"),
        ({"usages": None}, "usages must be"),
        ({"request": "%%%"}, "not base64"),
        ({"request": None}, "cannot be read"),
        ({"request": base64.b64encode(b"nothing").decode()}, "cannot be read"),
    ],
)
def test_others_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(Refused, match=says):
        review(csr(**changes), node(), RULES)


@pytest.mark.parametrize(
    ("pem", "says"),
    [
        (lambda: make_request(new_key(), "node-b", UID, []), "is for node node-b, the token"),
        (lambda: make_request(new_key(), "node-a", "old", []), "another node named node-a"),
        (lambda: make_request(new_key(), "node-a", UID, ["192.0.2.7"]), "192.0.2.7 is no Internal"),
        (lambda: make_request(new_key(), "node-a", UID, ["10.0.0.6"]), "10.0.0.6 is no InternalIP"),
    ],
)
def test_other_names_are_refused(pem: Any, says: str) -> None:
    with pytest.raises(Refused, match=says):
        review(csr(pem()), node(), RULES)


def test_a_node_that_went_is_refused() -> None:
    with pytest.raises(Refused, match="node node-a is not in the cluster any more"):
        review(csr(), None, RULES)
