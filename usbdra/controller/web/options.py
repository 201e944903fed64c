# SPDX-License-Identifier: Apache-2.0
"""Where the page is served. Plain values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class WebOptions:
    """Without `tls` only this machine reaches the page: in a pod, `kubectl port-forward`.

    tls: a directory with tls.crt and tls.key, as a mounted Secret has them; then everybody who
    reaches the pod does. In clear it never leaves the pod.
    """

    port: int = 8082
    tls: Path | None = None

    @property
    def host(self) -> str | None:
        """Where to listen; None for every address."""
        return None if self.tls else "127.0.0.1"
