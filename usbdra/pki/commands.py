# SPDX-License-Identifier: Apache-2.0
"""What `usbdra pki init`, `issue` and `show` do.

Owns the three jobs; contents are authority.py's and files are files.py's. Must not print.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from usbdra.errors import ConfigError
from usbdra.pki import authority, files
from usbdra.types import NODE_URI_PREFIX

if TYPE_CHECKING:
    from cryptography import x509


@dataclass(frozen=True, slots=True)
class CertificateSummary:
    """One certificate for people. `node` is None for a CA; times are UTC."""

    path: Path
    subject: str
    is_ca: bool
    node: str | None
    hosts: tuple[str, ...]
    serial: str
    not_before: datetime
    not_after: datetime
    fingerprint: str
    """SHA-256 of the certificate in hex."""

    def days_left(self, now: datetime) -> int:
        """Whole days until it expires; negative when it has."""
        return (self.not_after - now).days


def init(
    directory: Path,
    *,
    common_name: str = "usbdra CA",
    days: int = authority.CA_DAYS,
    force: bool = False,
    now: datetime | None = None,
) -> CertificateSummary:
    """Make a CA in `directory`. Raises ConfigError when there is one and `force` is not set."""
    pair = authority.make_authority(common_name, now or datetime.now(UTC), timedelta(days=days))
    files.write_authority(directory, pair, force=force)
    return _summary(directory / files.CA_CERT, pair.cert)


def issue(
    directory: Path,
    node: str,
    *,
    hosts: Sequence[str] = (),
    days: int = authority.NODE_DAYS,
    force: bool = False,
    now: datetime | None = None,
) -> CertificateSummary:
    """Sign a certificate for `node` with the CA of `directory`; path.parent is what to copy.

    `hosts`: names and addresses the node is dialled by, besides its own name.
    """
    ca = files.read_authority(directory)
    lifetime = timedelta(days=days)
    pair = authority.issue_node(ca, node, hosts, now or datetime.now(UTC), lifetime)
    target = files.write_node(directory, node, pair, ca.cert_pem(), force=force)
    return _summary(target / files.NODE_CERT, pair.cert)


def show(path: Path) -> list[CertificateSummary]:
    """Summaries of a certificate file, or of all below a directory, CA first.

    Raises ConfigError when there is none, or one cannot be read.
    """
    if path.is_dir():
        nodes = sorted((path / files.NODES).glob(f"*/{files.NODE_CERT}"))
        found = [one for one in (path / files.CA_CERT, path / files.NODE_CERT) if one.exists()]
        paths = [*found, *nodes]
    else:
        paths = [path]
    if not paths:
        raise ConfigError(f"there is no certificate in {path}; `usbdra pki init` makes a CA")
    return [_load(one) for one in paths]


def _load(path: Path) -> CertificateSummary:
    return _summary(path, authority.read_certificates(files.read_pem(path), str(path))[0])


def _summary(path: Path, cert: x509.Certificate) -> CertificateSummary:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    uris, hosts = _alternative_names(cert)
    nodes = [uri.removeprefix(NODE_URI_PREFIX) for uri in uris if uri.startswith(NODE_URI_PREFIX)]
    try:
        is_ca = cert.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        is_ca = False
    return CertificateSummary(
        path=path,
        subject=cert.subject.rfc4514_string(),
        is_ca=is_ca,
        node=nodes[0] if nodes else None,
        hosts=hosts,
        serial=f"{cert.serial_number:x}",
        not_before=cert.not_valid_before_utc,
        not_after=cert.not_valid_after_utc,
        fingerprint=cert.fingerprint(hashes.SHA256()).hex(),
    )


def _alternative_names(cert: x509.Certificate) -> tuple[list[str], tuple[str, ...]]:
    """(URIs, host names and addresses)."""
    from cryptography import x509

    try:
        names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return [], ()
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    addresses = names.get_values_for_type(x509.IPAddress)
    hosts = (*names.get_values_for_type(x509.DNSName), *(str(one) for one in addresses))
    return uris, hosts
