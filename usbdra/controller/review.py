# SPDX-License-Identifier: Apache-2.0
"""Whether a CertificateSigningRequest may be signed: who asks, from which node, for what. Pure.

Owns the decision and its text. The API server, not the asker, fills in the requester's name and
the node of its token (KEP-4193), so both can be relied on. Must not do I/O.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from usbdra.errors import Refused
from usbdra.kube.addresses import internal_addresses
from usbdra.pki.request import NodeRequest, read_request

NODE_NAME = "authentication.kubernetes.io/node-name"
NODE_UID = "authentication.kubernetes.io/node-uid"
USAGES = frozenset({"digital signature", "client auth", "server auth"})


@dataclass(frozen=True, slots=True)
class Rules:
    """signer: the signer's name. requester: the one user who may ask, as the API spells it."""

    signer: str
    requester: str


def requester(namespace: str, account: str) -> str:
    """A service account's user name."""
    return f"system:serviceaccount:{namespace}:{account}"


def node_of(csr: Mapping[str, Any], rules: Rules) -> str:
    """The node that the asker's token names. Raises Refused when the asker may not ask at all."""
    spec = csr["spec"]
    if spec.get("signerName") != rules.signer:
        raise Refused(f"this signer is {rules.signer}")
    if spec.get("username") != rules.requester:
        raise Refused(f"only {rules.requester} may ask, not {spec.get('username')}")
    return _claim(spec, NODE_NAME)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the agent of a node asks for: PEM of a request; and the UID of its Node."""

    pem: bytes
    uid: str


def asked_by(csr: Mapping[str, Any], node: Mapping[str, Any] | None, rules: Rules) -> Asked:
    """What is asked for, by whom the API server says it is. Raises Refused with the reason.

    node: the Node object of node_of(), read after the request came; None when there is none.
    """
    name = node_of(csr, rules)
    if node is None:
        raise Refused(f"node {name} is not in the cluster any more")
    uid = _claim(csr["spec"], NODE_UID)
    if node["metadata"]["uid"] != uid:
        raise Refused(f"the token is of an earlier node named {name}")
    require_usages(csr)
    return Asked(pem_of(csr), uid)


def require_usages(csr: Mapping[str, Any]) -> None:
    """Raises Refused unless the usages are those of our certificates."""
    usages = csr["spec"].get("usages") or []
    if len(usages) != len(USAGES) or set(usages) != USAGES:
        raise Refused(f"the usages must be {', '.join(sorted(USAGES))}, not {', '.join(usages)}")


def review(csr: Mapping[str, Any], node: Mapping[str, Any] | None, rules: Rules) -> NodeRequest:
    """What to sign. Raises Refused with the reason; `node` as for asked_by."""
    asked = asked_by(csr, node, rules)
    name, uid = node_of(csr, rules), asked.uid
    request = read_request(asked.pem)
    if request.node != name:
        raise Refused(f"the request is for node {request.node}, the token of node {name}")
    if request.node_uid != uid:
        raise Refused(f"the request is for another node named {name}")
    foreign = set(request.addresses) - set(internal_addresses(node or {}))
    if foreign:
        raise Refused(f"{', '.join(sorted(foreign))} is no InternalIP of node {name}")
    return request


def _claim(spec: Mapping[str, Any], key: str) -> str:
    values = (spec.get("extra") or {}).get(key) or []
    if len(values) != 1:
        raise Refused(
            f"the asker's token does not name its node ({key}); a pod's own token does, an "
            "administrator's or an unbound one does not"
        )
    return str(values[0])


def pem_of(csr: Mapping[str, Any]) -> bytes:
    """The request in a CertificateSigningRequest. Raises Refused."""
    try:
        return base64.b64decode(csr["spec"].get("request") or "", validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise Refused("the request is not base64") from error
