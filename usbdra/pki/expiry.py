# SPDX-License-Identifier: Apache-2.0
"""When a certificate on disk ends. Must not judge whether that is soon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from usbdra.errors import ConfigError
from usbdra.pki import authority, files

if TYPE_CHECKING:
    from cryptography import x509


def life(path: Path) -> tuple[float, float] | None:
    """Of the first certificate in a PEM file; see `life_of`. None when there is none to read."""
    try:
        return life_of(authority.read_certificates(files.read_pem(path), str(path))[0])
    except ConfigError:
        return None


def life_of(cert: x509.Certificate) -> tuple[float, float]:
    """Seconds: when it ends (since the epoch), and how long it holds in all."""
    end, start = cert.not_valid_after_utc, cert.not_valid_before_utc
    return end.timestamp(), (end - start).total_seconds()
