# SPDX-License-Identifier: Apache-2.0
"""The page's own files, with what a browser must know of them.

Owns which files there are: nothing else can be asked for.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "page"
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
"""Nothing from elsewhere, no inline script or style, no text that becomes markup, no frame."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Of every answer."""


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file. `etag` as in the header, quotes included."""

    body: bytes
    type: str
    etag: str


def load(folder: Path = FOLDER) -> dict[str, PageFile]:
    """Every file by its URL path; `/` is index.html. Raises OSError."""
    found = {}
    for path in sorted(folder.iterdir()):
        if path.suffix in _TYPES:
            body = path.read_bytes()
            etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            found[f"/{path.name}"] = PageFile(body, _TYPES[path.suffix], etag)
    found["/"] = found.pop("/index.html")
    return found
