# SPDX-License-Identifier: Apache-2.0
"""The certificate the page is served with, from files that may be renewed at any time.

Owns the reading of them: a connection gets what the files hold when it begins.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from usbdra.errors import ConfigError

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)


class Renewed:
    """`context` is for a server; each handshake looks whether the files have changed."""

    def __init__(self, directory: Path) -> None:
        """Raises ConfigError when the files are no certificate and key."""
        self._files = (directory / "tls.crt", directory / "tls.key")
        self._state = self._look()
        try:
            self.context = self._current = self._load()
        except OSError as error:  # an SSLError too
            raise ConfigError(f"the page's certificate in {directory}: {error}") from error
        self.context.sni_callback = self._choose

    def _look(self) -> tuple[int, ...]:
        """What changes with the files; a mounted Secret is renewed by another link."""
        try:
            return tuple(path.stat().st_mtime_ns for path in self._files)
        except OSError:
            return ()

    def _load(self) -> ssl.SSLContext:
        import ssl

        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(*self._files)
        return context

    def _choose(self, connection: ssl.SSLObject, name: str | None, own: ssl.SSLContext) -> None:
        state = self._look()
        if state and state != self._state:
            try:
                self._current, self._state = self._load(), state
            except OSError as error:  # half written: the old one is good until the next look
                log.warning("the page's certificate: %s", error, extra={"once": "page-tls"})
        connection.context = self._current
