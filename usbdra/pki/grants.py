# SPDX-License-Identifier: Apache-2.0
"""A grant: one device of a host outside the cluster for one claim, as a name in a certificate.

Owns its spelling. A node shows the host a certificate of its own that says, besides its name, what
it was granted: short-lived, signed by the cluster's CA, of no use without the node's key. The host,
which cannot read claims, thus knows that somebody did. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

GRANT_PREFIX = "usbdra-grant://node/"
"""The host part is the one that the CA's name constraint permits."""

_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_NAME = r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?"
_PATH = re.compile(
    rf"(?P<host>{_LABEL})/(?P<device>{_LABEL})/(?P<namespace>{_LABEL})/(?P<claim>{_NAME})"
    r"/(?P<uid>[A-Za-z0-9][-A-Za-z0-9]{0,63})",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Grant:
    """A host's device, by its stable name, for a ResourceClaim."""

    host: str
    device: str
    namespace: str
    claim: str
    uid: str

    def uri(self) -> str:
        """The name that a certificate has."""
        parts = (self.host, self.device, self.namespace, self.claim, self.uid)
        return GRANT_PREFIX + "/".join(parts)


def parse_grant(uri: str) -> Grant | None:
    """The grant of a certificate's name; None for other names."""
    if not uri.startswith(GRANT_PREFIX):
        return None
    match = _PATH.fullmatch(uri, len(GRANT_PREFIX))
    return Grant(*match.groups()) if match else None
