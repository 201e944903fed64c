# SPDX-License-Identifier: Apache-2.0
"""Certificates that an attacker shows: of a CA of its own, or of one whose key it has.

Owns the files of one run. What they say is the product's own authority.py, so that a refused one
is refused for what the test names and for nothing else.
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from usbdra.pki import authority
from usbdra.pki.authority import Pair

HOUR = timedelta(hours=1)


class Forger:
    """Signs with `ca`; each certificate gets a folder of its own with tls.crt and tls.key."""

    def __init__(self, folder: Path, ca: Pair) -> None:
        self._folder = folder
        self._ca = ca

    @classmethod
    def stranger(cls, folder: Path, common_name: str) -> Forger:
        """A CA that nobody believes, under any name."""
        return cls(folder, authority.make_authority(common_name, datetime.now(UTC)))

    def impostor(self) -> Forger:
        """Another CA of the same name."""
        name = self._ca.cert.subject.rfc4514_string().removeprefix("CN=")
        return self.stranger(self._folder, name)

    def node(self, node: str, uid: str = "", begins: timedelta = timedelta(0)) -> Path:
        """A certificate for a node, good for an hour that begins so long from now."""
        key = authority.new_key()
        begin = datetime.now(UTC) + begins
        cert = authority.sign_node(self._ca, node, (), key.public_key(), begin, HOUR, uid)
        return self._write(Pair(cert, key))

    def authority(self) -> Path:
        """The CA's own certificate, as if it were a node's."""
        return self._write(self._ca)

    def _write(self, pair: Pair) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="forged-", dir=self._folder))
        (folder / "tls.crt").write_bytes(pair.cert_pem())
        (folder / "tls.key").write_bytes(pair.key_pem())
        return folder
