# SPDX-License-Identifier: Apache-2.0
"""What our certificates say: make a CA, sign node certificates, on a host or in a cluster.

Owns the contents of certificates. Must not touch files (files.py), sockets or the API. Time
comes in as an argument.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from usbdra.errors import ConfigError
from usbdra.types import NODE_URI_PREFIX

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )

CA_DAYS = 3650
NODE_DAYS = 825
"""The longest life that common TLS libraries accept of a leaf."""
BACKDATED = timedelta(minutes=5)
"""Clocks of two hosts may differ by so much on the day of issue."""

_HOST = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_URI_HOST = NODE_URI_PREFIX.removeprefix("usbdra://").rstrip("/")


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key."""

    cert: x509.Certificate
    key: EllipticCurvePrivateKey

    def cert_pem(self) -> bytes:
        """The certificate as PEM."""
        from cryptography.hazmat.primitives.serialization import Encoding

        return self.cert.public_bytes(Encoding.PEM)

    def key_pem(self) -> bytes:
        """The key as PEM, PKCS#8, not encrypted."""
        return key_pem(self.key)


def key_pem(key: EllipticCurvePrivateKey) -> bytes:
    """A key as PEM, PKCS#8, not encrypted."""
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def read_certificates(pem: bytes, what: str) -> tuple[x509.Certificate, ...]:
    """The certificates of a PEM text, at least one, each readable in all its parts.

    Raises ConfigError naming `what`. The parser reads on demand and raises classes of its own:
    nobody behind this function meets them.
    """
    from cryptography import x509

    try:
        certificates = tuple(x509.load_pem_x509_certificates(pem))
        for one in certificates:
            _read_all(one)
    except Exception as exc:
        raise ConfigError(f"cannot use {what}: not a certificate in PEM form") from exc
    return certificates


def _read_all(cert: x509.Certificate) -> tuple[object, ...]:
    """Every part that we look at later."""
    times = (cert.not_valid_before_utc, cert.not_valid_after_utc)
    names = (cert.subject.rfc4514_string(), cert.issuer.rfc4514_string())
    return (*times, *names, cert.public_key(), list(cert.extensions))


def read_pair(cert_pem: bytes, key_pem: bytes, cert_name: str, key_name: str) -> Pair:
    """A certificate and its key from PEM. Raises ConfigError naming the one that is unusable."""
    cert = read_certificates(cert_pem, cert_name)[0]
    key = read_key(key_pem, key_name)
    if key.public_key() != cert.public_key():
        raise ConfigError(f"{key_name} is not the key of {cert_name}")
    return Pair(cert, key)


def read_key(pem: bytes, what: str) -> EllipticCurvePrivateKey:
    """An EC key from PEM. Raises ConfigError naming `what`."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as exc:
        raise ConfigError(f"cannot use {what}: not an unencrypted key in PEM form") from exc
    if not isinstance(key, EllipticCurvePrivateKey):
        raise ConfigError(f"cannot use {what}: not an EC key")
    return key


def peer_of(cert: x509.Certificate) -> str:
    """The name of the node or other peer that a certificate is for; "" when it names none."""
    from cryptography import x509

    try:
        names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ""
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    found = [uri for uri in uris if uri.startswith(NODE_URI_PREFIX)]
    return found[0].removeprefix(NODE_URI_PREFIX) if len(found) == 1 else ""


def make_authority(
    common_name: str, now: datetime, lifetime: timedelta = timedelta(days=CA_DAYS)
) -> Pair:
    """A self-signed EC P-256 CA that signs leaves only.

    Its name constraint permits URI names below `usbdra://node/` and no other URI, so the CA is of
    no use for identities of other systems.
    """
    from cryptography import x509

    key = new_key()
    name = _name(common_name)
    constraints = x509.NameConstraints([x509.UniformResourceIdentifier(_URI_HOST)], None)
    builder = (
        _builder(name, name, key.public_key(), now, lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(ca=True), critical=True)
        .add_extension(constraints, critical=True)
    )
    return Pair(_sign(builder, key), key)


def issue_node(
    authority: Pair,
    node: str,
    hosts: Sequence[str],
    now: datetime,
    lifetime: timedelta = timedelta(days=NODE_DAYS),
) -> Pair:
    """A certificate for one node, both for serving and for dialling.

    `hosts` are DNS names and addresses it is dialled by, besides its name. It never outlives the
    CA. Raises ConfigError for a malformed name or an expired CA.
    """
    key = new_key()
    return Pair(sign_node(authority, node, hosts, key.public_key(), now, lifetime), key)


def sign_node(
    authority: Pair,
    node: str,
    hosts: Sequence[str],
    public_key: object,
    now: datetime,
    lifetime: timedelta,
    node_uid: str = "",
) -> x509.Certificate:
    """As issue_node, for a key that somebody else keeps (a certificate request).

    node_uid: UID of the Node object, where there is one: another machine that later gets the
    node's name is told from this one by it.
    """
    if not _HOST.fullmatch(node):
        raise ConfigError(f"{node!r} is not a node name: lower-case letters, digits, - and .")
    names = node_names(node, hosts)
    return _sign_leaf(authority, node_subject(node, node_uid), names, public_key, now, lifetime)


def sign_peer(
    authority: Pair,
    peer: str,
    public_key: object,
    now: datetime,
    lifetime: timedelta,
    *,
    uid: str = "",
    uris: Sequence[str] = (),
) -> x509.Certificate:
    """A certificate for a peer by its name alone: a host outside the cluster, the controller, or
    a node that shows what it was granted.

    It has no host names and no addresses, by which it could be taken for another. uris: further
    names. Raises ConfigError as issue_node.
    """
    names = peer_names(peer, uris)
    return _sign_leaf(authority, node_subject(peer, uid), names, public_key, now, lifetime)


def _sign_leaf(
    authority: Pair,
    subject: x509.Name,
    names: x509.SubjectAlternativeName,
    public_key: object,
    now: datetime,
    lifetime: timedelta,
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    if not isinstance(public_key, ec.EllipticCurvePublicKey):
        raise ConfigError(f"the key of {subject.rfc4514_string()} is not an EC key")
    left = authority.cert.not_valid_after_utc - now
    if left <= timedelta(0):
        raise ConfigError("the CA has expired; make a new one")
    usages = x509.ExtendedKeyUsage(
        [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    )
    issuer_key = authority.key.public_key()
    builder = (
        _builder(subject, authority.cert.subject, public_key, now, min(lifetime, left))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(ca=False), critical=True)
        .add_extension(usages, critical=False)
        .add_extension(names, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False
        )
    )
    return _sign(builder, authority.key)


def node_subject(node: str, node_uid: str = "") -> x509.Name:
    """A node certificate's subject: the node as common name, its UID as serial number."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    uid = [x509.NameAttribute(NameOID.SERIAL_NUMBER, node_uid)] if node_uid else []
    return x509.Name([*_name(node), *uid])


def node_names(node: str, hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    """A node certificate's alternative names: the node's URI, its name, `hosts`.

    Raises ConfigError for a host that is neither a host name nor an address.
    """
    from cryptography import x509

    uri = x509.UniformResourceIdentifier(NODE_URI_PREFIX + node)
    return x509.SubjectAlternativeName([uri, *_host_names((node, *hosts))])


def peer_names(peer: str, uris: Sequence[str] = ()) -> x509.SubjectAlternativeName:
    """A peer's alternative names: its URI, and further ones."""
    from cryptography import x509

    return x509.SubjectAlternativeName(
        [x509.UniformResourceIdentifier(uri) for uri in (NODE_URI_PREFIX + peer, *uris)]
    )


def _host_names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    from cryptography import x509

    names: list[x509.GeneralName] = []
    for host in dict.fromkeys(host.lower().rstrip(".") for host in hosts):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            if not _HOST.fullmatch(host):
                raise ConfigError(f"{host!r} is neither a host name nor an address") from None
            names.append(x509.DNSName(host))
    return names


def new_key() -> EllipticCurvePrivateKey:
    """A key of the one kind that our certificates have: EC P-256."""
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _name(common_name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    # X.520 allows 64 characters; the whole name is in the SAN, which is what counts.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: EllipticCurvePublicKey,
    now: datetime,
    lifetime: timedelta,
) -> x509.CertificateBuilder:
    from cryptography import x509

    if lifetime <= timedelta(0):
        raise ConfigError(f"a certificate cannot be valid for {lifetime}")
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _key_usage(*, ca: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not ca,
        key_cert_sign=ca,
        crl_sign=ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _sign(builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography.hazmat.primitives import hashes

    return builder.sign(key, hashes.SHA256())
