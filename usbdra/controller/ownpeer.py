# SPDX-License-Identifier: Apache-2.0
"""The controller as a peer of hosts outside the cluster: a certificate of its own, in memory.

Owns that certificate. The CA's Secret is the controller's already; nothing of this is written
anywhere. Must not dial.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from usbdra.controller import castore
from usbdra.controller.hostcerts import renewed
from usbdra.controller.rotation import Authorities
from usbdra.errors import ConfigError
from usbdra.kube.types import SECRET
from usbdra.kube.verbs import Gets
from usbdra.pki import trust
from usbdra.pki.authority import Pair, new_key, sign_peer
from usbdra.transport.ktls import Role
from usbdra.transport.tls import TlsContext, context_of
from usbdra.types import CONTROLLER

LIFETIME = timedelta(minutes=20)
"""Of the certificate; after half of it the CAs are read again and another is made. A new CA is
believed for an hour before it signs."""


class OwnPeer:
    """See transport/tls.py's Contexts. `refresh` before each dial."""

    def __init__(
        self,
        api: Gets,
        names: castore.Names,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._api = api
        self._names = names
        self._clock = clock
        self._context: TlsContext | None = None
        self._due: datetime | None = None
        self._authorities: Authorities | None = None

    @property
    def bundle(self) -> str:
        """PEM of the CAs to believe, the one that signs first."""
        return "" if self._authorities is None else _bundle(self._authorities).decode()

    def sign_next(self, host: str, request: str) -> str:
        """PEM of the next certificate of a host. Raises Refused."""
        assert self._authorities is not None
        pem = request.encode("ascii", "replace")
        cert = renewed(self._authorities.signing, host, pem, self._clock())
        return trust.write_bundle([cert]).decode()

    def context(self, role: Role) -> TlsContext:
        """See Contexts; the controller only ever dials."""
        if self._context is None or role is not Role.CLIENT:
            raise ConfigError("the controller has no certificate yet")
        return self._context

    def forget(self) -> None:
        """The next refresh reads the CA again: a peer did not believe this certificate."""
        self._due = None

    async def refresh(self) -> None:
        """Have a certificate of the CA that signs now. Raises ApiError, and ConfigError."""
        now = self._clock()
        if self._due is not None and now < self._due:
            return
        secret = await self._api.get(SECRET, self._names.secret, self._names.namespace)
        authorities = castore.authorities_of(secret)
        key = new_key()
        cert = sign_peer(authorities.signing, CONTROLLER, key.public_key(), now, LIFETIME)
        pair = Pair(cert, key)
        bundle = _bundle(authorities)
        self._context = context_of(pair.cert_pem(), pair.key_pem(), bundle, Role.CLIENT)
        self._authorities = authorities
        self._due = now + LIFETIME / 2


def _bundle(authorities: Authorities) -> bytes:
    return trust.write_bundle(authorities.believed)
