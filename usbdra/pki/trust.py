# SPDX-License-Identifier: Apache-2.0
"""A trust bundle: the CA certificates that a node believes, one or two of them.

Owns reading a bundle, and whether a certificate holds under it. Pure but for the parser; time
comes in as an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from usbdra.errors import ConfigError
from usbdra.pki.authority import read_certificates

if TYPE_CHECKING:
    from cryptography import x509

MAX_BUNDLE = 64 * 1024
"""Bytes of PEM; a CA of ours takes some 700."""


def read_bundle(pem: bytes, what: str) -> tuple[x509.Certificate, ...]:
    """The CA certificates of a bundle, at least one. Raises ConfigError naming `what`."""
    if len(pem) > MAX_BUNDLE:
        raise ConfigError(f"{what} is longer than {MAX_BUNDLE} bytes")
    certificates = read_certificates(pem, what)
    for one in certificates:
        if not _is_ca(one):
            raise ConfigError(
                f"{what} holds {one.subject.rfc4514_string()}, which is not a CA's certificate"
            )
    return certificates


def write_bundle(certificates: Iterable[x509.Certificate]) -> bytes:
    """The certificates as one PEM text, each once."""
    from cryptography.hazmat.primitives.serialization import Encoding

    return b"".join(one.public_bytes(Encoding.PEM) for one in dict.fromkeys(certificates))


def holds(cert: x509.Certificate, bundle: Sequence[x509.Certificate], now: datetime) -> bool:
    """Whether a CA of the bundle, itself valid now, issued this certificate."""
    return any(_issued(cert, ca) for ca in bundle if ca.not_valid_after_utc > now)


def _issued(cert: x509.Certificate, ca: x509.Certificate) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        cert.verify_directly_issued_by(ca)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _is_ca(cert: x509.Certificate) -> bool:
    from cryptography import x509

    try:
        return bool(cert.extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
    except x509.ExtensionNotFound:
        return False
