# SPDX-License-Identifier: Apache-2.0
"""The certificate and the CAs of a host outside a cluster, kept new by the controller's visits.

Owns when the host asks for a certificate, and what it takes in: from the controller alone, which
its present CAs vouch for, and nothing that would not serve. The key is never changed or sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from usbdra.errors import UsbdraError
from usbdra.exporter.broker import Peer
from usbdra.pki import authority, files, hostfiles, trust
from usbdra.types import CONTROLLER
from usbdra.usbip.extension import InventoryRequest

log = logging.getLogger(__name__)

RENEW_AT = 2 / 3
"""Part of a certificate's life after which the host asks for the next."""


class HostRenewal:
    """See exporter/conversation.py's Visited. `directory` has tls.key, tls.crt and ca.crt."""

    def __init__(
        self,
        directory: Path,
        host: str,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._directory = directory
        self._host = host
        self._clock = clock

    async def __call__(self, peer: Peer, request: InventoryRequest) -> str:
        """Take in what the controller brought; a certificate request when one is due."""
        if peer.node != CONTROLLER or not request.trust:
            return ""
        try:
            return self._visited(request)
        except UsbdraError as error:
            log.warning("this host's certificate: %s", error, extra={"once": str(error)})
            return ""

    def _visited(self, request: InventoryRequest) -> str:
        bundle = request.trust.encode("ascii", "replace")
        believed = trust.read_bundle(bundle, "the CAs that the controller brought")
        if request.certificate:
            brought = request.certificate.encode("ascii", "replace") + bundle
            what = "the certificate that the controller brought"
            hostfiles.accept(self._directory, brought, self._clock(), what)
            log.info("this host has a new certificate")
        path = self._directory / files.NODE_CERT
        cert = authority.read_certificates(files.read_pem(path), str(path))[0]
        own = trust.write_bundle(believed)
        # Only CAs under which we can still show ours: else nobody would be let in to mend it.
        if trust.holds(cert, believed, self._clock()):
            ca = self._directory / files.CA_CERT
            if files.read_pem(ca) != own:
                files.write_file(ca, own, 0o644, replace=True)
                log.info("this host believes %d CAs of its cluster", len(believed))
        begin, end = cert.not_valid_before_utc, cert.not_valid_after_utc
        due = begin + (end - begin) * RENEW_AT <= self._clock()
        if due or not trust.holds(cert, believed[:1], self._clock()):
            return hostfiles.request(self._directory, self._host).decode()
        return ""
