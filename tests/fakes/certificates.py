# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests: one CA and the nodes a and b of it, made once a session; a stranger."""

from __future__ import annotations

import atexit
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from usbdra.pki import authority, files
from usbdra.transport.tls import Identity, TlsFiles


@dataclass(frozen=True)
class Certificates:
    """Directories with tls.crt, tls.key and ca.crt. `stranger` has another CA of the same name."""

    a: Path
    b: Path
    stranger: Path

    @property
    def ca(self) -> Path:
        """Directory of the CA of a and b, with its key."""
        return self.b.parents[1]

    def identity(self, which: str) -> Identity:
        return Identity(TlsFiles.in_directory(getattr(self, which)))


@cache
def certificates() -> Certificates:
    """Made once for the whole run; below a directory of its own in the temporary directory."""
    base, now = Path(mkdtemp(prefix="usbdra-tests-")), datetime.now(UTC)
    atexit.register(shutil.rmtree, base, ignore_errors=True)
    directories = {}
    for ca_name, nodes in (("ours", ("a", "b")), ("other", ("stranger",))):
        ca = authority.make_authority("usbdra CA", now)
        files.write_authority(base / ca_name, ca)
        for node in nodes:
            hosts = ("127.0.0.1", "::1", "localhost") if node == "a" else ()
            pair = authority.issue_node(ca, f"node-{node}", hosts, now)
            directories[node] = files.write_node(
                base / ca_name, f"node-{node}", pair, ca.cert_pem(), force=False
            )
    return Certificates(**directories)
