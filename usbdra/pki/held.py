# SPDX-License-Identifier: Apache-2.0
"""The certificate a node has, and when it needs another. Pure but for reading the set.

Owns the decision when to renew. Must not ask for certificates.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from usbdra.errors import ConfigError, Refused
from usbdra.pki import authority, files, trust
from usbdra.pki.authority import Pair

if TYPE_CHECKING:
    from cryptography import x509

RENEW_AT = (0.62, 0.70)
"""Parts of a certificate's life; where between, chance says, so that nodes that were installed
together do not ask together for ever."""


@dataclass(frozen=True, slots=True)
class Held:
    """A node's pair and the bundle that lies with it."""

    pair: Pair
    bundle: bytes


def read_held(directory: Path) -> Held | None:
    """The current set of sets.py; None when there is none that can be used."""
    cert, key = directory / files.NODE_CERT, directory / files.NODE_KEY
    try:
        pair = authority.read_pair(files.read_pem(cert), files.read_pem(key), str(cert), str(key))
        return Held(pair, files.read_pem(directory / files.CA_CERT))
    except ConfigError:
        return None


def renew_at(
    cert: x509.Certificate,
    bundle: Sequence[x509.Certificate],
    now: datetime,
    *,
    node: str,
    node_uid: str,
    addresses: Collection[str],
    part: float,
) -> datetime:
    """When to ask for the next certificate; `now` when this one is not what the node needs.

    part: of the certificate's life, between the two of RENEW_AT.
    """
    from cryptography import x509

    end, begin = cert.not_valid_after_utc, cert.not_valid_before_utc
    try:
        names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return now
    has = {str(one) for one in names.get_values_for_type(x509.IPAddress)}
    right = cert.subject == authority.node_subject(node, node_uid) and has >= set(addresses)
    if not right or end <= now or not trust.holds(cert, bundle, now):
        return now
    return max(now, begin + (end - begin) * part)


def require(
    cert: x509.Certificate, pair_key: object, bundle: Sequence[x509.Certificate], now: datetime
) -> None:
    """Check what a signer answered. Raises Refused: a certificate that others would not believe
    must not replace one that works."""
    if cert.public_key() != pair_key:
        raise Refused("the signer answered with the certificate of another key")
    if not trust.holds(cert, bundle, now):
        raise Refused("the signer's CA is not in the trust bundle")
