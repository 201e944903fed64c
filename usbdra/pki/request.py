# SPDX-License-Identifier: Apache-2.0
"""A node's certificate request: made on the node, read by whoever signs.

Owns the contents of requests: what we ask for, and that what is read asks for exactly that and
nothing more. Whether the asker may have it is the signer's decision. Must not touch files or
the API.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from usbdra.errors import ConfigError, Refused
from usbdra.pki import authority
from usbdra.types import NODE_URI_PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )

MAX_REQUEST = 16 * 1024
"""Bytes of PEM; a request with eight addresses is below 1 KiB."""
MAX_ADDRESSES = 16


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """What a request asks for. `addresses` are canonical texts, as `ipaddress` writes them."""

    node: str
    node_uid: str
    addresses: tuple[str, ...]
    public_key: EllipticCurvePublicKey


@dataclass(frozen=True, slots=True)
class PeerRequest:
    """What a request asks for that names a peer by its URI alone, and further URIs."""

    peer: str
    uid: str
    uris: tuple[str, ...]
    public_key: EllipticCurvePublicKey


def make_request(
    key: EllipticCurvePrivateKey, node: str, node_uid: str, addresses: Sequence[str]
) -> bytes:
    """The PEM of a request for `node`'s certificate, signed with its key.

    Raises ConfigError for a text that is no address.
    """
    return _make(key, authority.node_subject(node, node_uid), authority.node_names(node, addresses))


def read_request(pem: bytes) -> NodeRequest:
    """What a request asks for. Raises Refused with what is wrong or too much in it.

    Everything beyond subject, key and alternative names of the form that make_request writes
    is refused, not ignored: what is ignored today may be honoured by tomorrow's signer.
    """
    opened = _open(pem)
    node, addresses = _names(opened.names)
    uid = _uid(opened.subject)
    if opened.subject != authority.node_subject(node, uid):
        raise Refused(f"the request's subject is not that of node {node}")
    return NodeRequest(node, uid, addresses, opened.public_key)


def make_peer_request(
    key: EllipticCurvePrivateKey, peer: str, uid: str = "", uris: Sequence[str] = ()
) -> bytes:
    """The PEM of a request for a certificate that names `peer` and `uris` (authority.sign_peer)."""
    return _make(key, authority.node_subject(peer, uid), authority.peer_names(peer, uris))


def read_peer_request(pem: bytes) -> PeerRequest:
    """What such a request asks for. Raises Refused as read_request."""
    from cryptography import x509

    opened = _open(pem)
    uris = opened.names.get_values_for_type(x509.UniformResourceIdentifier)
    peers = [uri for uri in uris if uri.startswith(NODE_URI_PREFIX)]
    if len(peers) != 1:
        raise Refused(f"the request has no single URI name {NODE_URI_PREFIX}<name>")
    peer = peers[0].removeprefix(NODE_URI_PREFIX)
    others = tuple(uri for uri in uris if uri != peers[0])
    if list(opened.names) != list(authority.peer_names(peer, others)):
        raise Refused(f"the request has other names than that of {peer}")
    uid = _uid(opened.subject) if len(list(opened.subject)) > 1 else ""
    if opened.subject != authority.node_subject(peer, uid):
        raise Refused(f"the request's subject is not that of {peer}")
    return PeerRequest(peer, uid, others, opened.public_key)


@dataclass(frozen=True, slots=True)
class _Opened:
    """A request whose parts are of the kinds that ours have; nothing is said of their contents."""

    subject: x509.Name
    names: x509.SubjectAlternativeName
    public_key: EllipticCurvePublicKey


def _make(
    key: EllipticCurvePrivateKey, subject: x509.Name, names: x509.SubjectAlternativeName
) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding

    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(subject)
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    return request.public_bytes(Encoding.PEM)


def _open(pem: bytes) -> _Opened:
    """Raises Refused."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    if len(pem) > MAX_REQUEST:
        raise Refused(f"the request is longer than {MAX_REQUEST} bytes")
    try:
        request = x509.load_pem_x509_csr(pem)
        extensions = list(request.extensions)
        public_key, subject = request.public_key(), request.subject
        signed = request.is_signature_valid
    except Exception as error:  # parsers of foreign ASN.1 raise what they like
        raise Refused(f"the request cannot be read: {error}") from error
    if not isinstance(public_key, ec.EllipticCurvePublicKey) or not isinstance(
        public_key.curve, ec.SECP256R1
    ):
        raise Refused("the request's key is not an EC key on P-256")
    if not signed:
        raise Refused("the request is not signed with its own key")
    if [type(one.value) for one in extensions] != [x509.SubjectAlternativeName]:
        raise Refused("the request has other extensions than alternative names")
    names = extensions[0].value
    assert isinstance(names, x509.SubjectAlternativeName)
    return _Opened(subject, names, public_key)


def _names(names: x509.SubjectAlternativeName) -> tuple[str, tuple[str, ...]]:
    """(node, addresses) of alternative names in our form."""
    from cryptography import x509

    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    if len(uris) != 1 or not uris[0].startswith(NODE_URI_PREFIX):
        raise Refused(f"the request has no single URI name {NODE_URI_PREFIX}<node>")
    node = uris[0].removeprefix(NODE_URI_PREFIX)
    addresses = tuple(str(one) for one in names.get_values_for_type(x509.IPAddress))
    if len(addresses) > MAX_ADDRESSES:
        raise Refused(f"the request has more than {MAX_ADDRESSES} addresses")
    try:
        wanted = authority.node_names(node, addresses)
    except ConfigError as error:
        raise Refused(f"the request's names: {error}") from error
    if list(names) != list(wanted):
        raise Refused(f"the request has other names than those of node {node} and its addresses")
    return node, addresses


def _uid(subject: x509.Name) -> str:
    from cryptography.x509.oid import NameOID

    values = subject.get_attributes_for_oid(NameOID.SERIAL_NUMBER)
    if len(values) != 1 or not isinstance(values[0].value, str):
        raise Refused("the request's subject does not hold the node's UID as serial number")
    return values[0].value
