# SPDX-License-Identifier: Apache-2.0
"""Certificate requests: what we ask for is read back; anything more or else is refused."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.searching import examples
from usbdra.errors import ConfigError, Refused
from usbdra.pki import authority, trust
from usbdra.pki.request import MAX_REQUEST, make_request, read_request

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
UID = "6a3d2a6e-6f2f-4e8e-9c56-0f2c35b6d9f1"
Builder = x509.CertificateSigningRequestBuilder


def built(change: Callable[[Builder], Builder], key: object = None, node: str = "node-a") -> bytes:
    """A request that differs from ours by `change`, which starts from no extension at all."""
    builder = Builder().subject_name(authority.node_subject(node, UID))
    made = change(builder).sign(key or authority.new_key(), hashes.SHA256())  # type: ignore[arg-type]
    return made.public_bytes(Encoding.PEM)


def with_names(*names: x509.GeneralName) -> Callable[[Builder], Builder]:
    return lambda b: b.add_extension(x509.SubjectAlternativeName(names), critical=False)


URI = x509.UniformResourceIdentifier("usbdra://node/node-a")
DNS = x509.DNSName("node-a")


def test_what_was_asked_is_read() -> None:
    key = authority.new_key()
    read = read_request(make_request(key, "node-a", UID, ["10.0.0.5", "fd00::0:1"]))
    assert (read.node, read.node_uid) == ("node-a", UID)
    assert read.addresses == ("10.0.0.5", "fd00::1")
    assert read.public_key == key.public_key()


def test_a_long_node_name_is_whole_in_its_names() -> None:
    node = "n" * 60 + "." + "m" * 60
    assert read_request(make_request(authority.new_key(), node, UID, [])).node == node


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda b: b, "other extensions"),
        (with_names(DNS), "no single URI name"),
        (with_names(URI, x509.UniformResourceIdentifier("usbdra://node/node-b"), DNS), "no single"),
        (with_names(URI), "other names"),
        (with_names(URI, DNS, x509.DNSName("node-b")), "other names"),
        (with_names(URI, DNS, x509.RFC822Name("a@b.c")), "other names"),
        (with_names(x509.UniformResourceIdentifier("usbdra://node/Node_A"), DNS), "neither a host"),
        (with_names(x509.UniformResourceIdentifier("usbdra://node/node-b"), x509.DNSName("node-b")),
         "subject is not that of node node-b"),
        (lambda b: with_names(URI, DNS)(b).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True), "other extensions"),
    ],
)  # fmt: skip
def test_anything_else_is_refused(change: Callable[[Builder], Builder], says: str) -> None:
    with pytest.raises(Refused, match=says):
        read_request(built(change))


def test_other_keys_are_refused() -> None:
    for key in (rsa.generate_private_key(65537, 1024), ec.generate_private_key(ec.SECP384R1())):
        with pytest.raises(Refused, match="not an EC key on P-256"):
            read_request(built(with_names(URI, DNS), key))


def test_a_subject_without_uid_or_with_more_is_refused() -> None:
    key = authority.new_key()
    for extra, says in (
        ([], "does not hold the node's UID"),
        ([x509.NameAttribute(NameOID.SERIAL_NUMBER, UID)] * 2, "does not hold the node's UID"),
        ([x509.NameAttribute(NameOID.SERIAL_NUMBER, UID),
          x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:masters")], "subject is not"),
    ):  # fmt: skip
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "node-a"), *extra])
        made = with_names(URI, DNS)(Builder().subject_name(name)).sign(key, hashes.SHA256())
        with pytest.raises(Refused, match=says):
            read_request(made.public_bytes(Encoding.PEM))


def test_a_request_signed_by_another_key_is_refused() -> None:
    made = x509.load_pem_x509_csr(make_request(authority.new_key(), "node-a", UID, []))
    der = bytearray(made.public_bytes(Encoding.DER))
    at = bytes(der).find(UID.encode())
    der[at] = ord("7")
    forged = x509.load_der_x509_csr(bytes(der)).public_bytes(Encoding.PEM)
    with pytest.raises(Refused, match="not signed with its own key"):
        read_request(forged)


def test_an_oversized_request_is_refused_unread() -> None:
    with pytest.raises(Refused, match="longer than"):
        read_request(b"x" * (MAX_REQUEST + 1))


@settings(max_examples=examples(80), deadline=None)
@given(st.binary(max_size=300), st.integers(0, 400))
def test_garbage_is_refused(noise: bytes, at: int) -> None:
    with pytest.raises(Refused):
        read_request(noise)
    good = make_request(_KEY, "node-a", UID, ["10.0.0.5"])
    with contextlib.suppress(Refused):
        assert read_request(good[:at] + noise[:40] + good[at + 40 :]).node == "node-a"


_KEY = authority.new_key()


def test_a_bundle_tells_what_it_believes() -> None:
    old = authority.make_authority("usbdra CA", NOW, timedelta(days=30))
    new = authority.make_authority("usbdra CA", NOW, timedelta(days=365))
    leaf = authority.issue_node(old, "node-a", [], NOW, timedelta(hours=24)).cert
    both = trust.read_bundle(trust.write_bundle([old.cert, new.cert, old.cert]), "the bundle")
    assert both == (old.cert, new.cert)
    assert trust.holds(leaf, both, NOW)
    assert not trust.holds(leaf, (new.cert,), NOW)
    assert not trust.holds(leaf, (old.cert,), NOW + timedelta(days=31))
    with pytest.raises(ConfigError, match="the bundle holds CN=node-a, which is not a CA"):
        trust.read_bundle(trust.write_bundle([leaf]), "the bundle")
    with pytest.raises(ConfigError, match="not a certificate in PEM form"):
        trust.read_bundle(b"-----BEGIN NOTHING-----", "the bundle")


def test_lifetimes_are_hours_and_end_with_the_authority() -> None:
    ca = authority.make_authority("usbdra CA", NOW, timedelta(hours=10))
    pair = authority.issue_node(ca, "node-a", [], NOW, timedelta(hours=2))
    assert pair.cert.not_valid_after_utc == NOW + timedelta(hours=2)
    capped = authority.issue_node(ca, "node-a", [], NOW, timedelta(hours=20))
    assert capped.cert.not_valid_after_utc == NOW + timedelta(hours=10)
    with pytest.raises(ConfigError, match="CA has expired"):
        authority.issue_node(ca, "node-a", [], NOW + timedelta(hours=10), timedelta(hours=2))


def test_a_certificate_of_a_version_that_is_none_is_an_error_like_others() -> None:
    """The parser has classes of its own for some mistakes; found by fuzzing."""
    der = bytearray(authority.make_authority("CA", NOW).cert.public_bytes(Encoding.DER))
    at = bytes(der).find(bytes((0xA0, 3, 2, 1, 2)))
    der[at + 4] = 6
    text = base64.encodebytes(bytes(der)).decode()
    pem = f"-----BEGIN CERTIFICATE-----\n{text}-----END CERTIFICATE-----\n".encode()
    with pytest.raises(ConfigError, match="cannot use the bundle"):
        trust.read_bundle(pem, "the bundle")
