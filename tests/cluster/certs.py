# SPDX-License-Identifier: Apache-2.0
"""Certificates, service account keys and kubeconfig files of one test cluster.

Owns the cluster's own certificate authority and what it signs. It knows nothing of processes or
of machines, and has nothing to do with the certificates of usbdra's own links.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# A guest under emulation may boot with a clock that is behind: certificates start in the past.
_BACKDATE = datetime.timedelta(days=1)
_LIFETIME = datetime.timedelta(days=30)


@dataclass(frozen=True)
class KeyPair:
    """The paths of a certificate and its private key, both PEM."""

    cert: Path
    key: Path


class Authority:
    """A certificate authority that writes what it signs below one directory (mode 0700).

    It goes on with the authority that the directory holds, if it holds one.
    """

    def __init__(self, directory: Path, name: str = "usbdra-test-cluster") -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self.pair = KeyPair(directory / "ca.crt", directory / "ca.key")
        if not self.pair.key.exists():
            self._create(name)
        key = serialization.load_pem_private_key(self.pair.key.read_bytes(), password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._key = key
        self._certificate = x509.load_pem_x509_certificate(self.pair.cert.read_bytes())

    def _create(self, name: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(name, ())
        certificate = (
            _builder(subject, subject, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(sign_certificates=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        self._write("ca", certificate, key)

    @property
    def pem(self) -> bytes:
        """The authority's certificate, PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def client(
        self, file_name: str, common_name: str, organizations: tuple[str, ...] = ()
    ) -> KeyPair:
        """A client certificate: Kubernetes reads user from the name, groups from organizations."""
        return self._issue(
            file_name, common_name, organizations, ExtendedKeyUsageOID.CLIENT_AUTH, ()
        )

    def server(self, file_name: str, common_name: str, names: tuple[str, ...]) -> KeyPair:
        """A server certificate for `names`, each a DNS name or an IP address."""
        return self._issue(file_name, common_name, (), ExtendedKeyUsageOID.SERVER_AUTH, names)

    def _issue(
        self,
        file_name: str,
        common_name: str,
        organizations: tuple[str, ...],
        purpose: x509.ObjectIdentifier,
        names: tuple[str, ...],
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(common_name, organizations)
        builder = (
            _builder(subject, self._certificate.subject, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(sign_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        )
        if names:
            alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
            builder = builder.add_extension(alternatives, critical=False)
        return self._write(file_name, builder.sign(self._key, hashes.SHA256()), key)

    def _write(
        self, file_name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
    ) -> KeyPair:
        pair = KeyPair(self._directory / f"{file_name}.crt", self._directory / f"{file_name}.key")
        pair.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        write_private(pair.key, _private_pem(key))
        return pair


def write_service_account_keys(directory: Path) -> tuple[Path, Path]:
    """Write the key pair that signs service account tokens; return (private, public) paths."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private, public = directory / "sa.key", directory / "sa.pub"
    write_private(private, _private_pem(key))
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return private, public


def kubeconfig(server: str, ca_pem: bytes, client: KeyPair) -> str:
    """The text of a kubeconfig with everything inlined, so that it can be copied to a node."""
    user = {
        "client-certificate-data": _base64(client.cert.read_bytes()),
        "client-key-data": _base64(client.key.read_bytes()),
    }
    return _kubeconfig(server, ca_pem, user)


def token_kubeconfig(server: str, ca_pem: bytes, token: str) -> str:
    """The text of a kubeconfig of whoever the token names, a service account for instance."""
    return _kubeconfig(server, ca_pem, {"token": token})


def _kubeconfig(server: str, ca_pem: bytes, user: dict[str, str]) -> str:
    cluster = {"server": server, "certificate-authority-data": _base64(ca_pem)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "bed", "cluster": cluster}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "bed", "context": {"cluster": "bed", "user": "user"}}],
        "current-context": "bed",
    }
    return yaml.safe_dump(config, sort_keys=False)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that nobody but its owner has been able to read at any time."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as stream:
        stream.write(content)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + _LIFETIME)
    )


def _subject(common_name: str, organizations: tuple[str, ...]) -> x509.Name:
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not sign_certificates,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _private_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
