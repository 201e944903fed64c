# SPDX-License-Identifier: Apache-2.0
"""What the API server accepts in a ResourceSlice, and how our values are made to fit.

Owns the limits and the shortening of names and values. Pure; knows nothing of devices.
Source: pkg/apis/resource/types.go and validation/validation.go of Kubernetes v1.37.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata

MAX_DEVICES = 128
MAX_DEVICES_ADVANCED = 64  # as soon as one device of the slice carries a taint
MAX_ATTRIBUTES = 32  # attributes and capacities of one device together
MAX_VALUE_BYTES = 64
MAX_ID_LENGTH = 32
MAX_DRIVER_LENGTH = 63
MAX_LABEL_LENGTH = 63
MAX_SUBDOMAIN_LENGTH = 253

_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_HASH_DIGITS = 12  # 48 bits: two of a million values share a hash with odds of 1 in 500


def is_dns_label(text: str) -> bool:
    """Whether the text is a DNS label (RFC 1123): what a device name must be."""
    return len(text) <= MAX_LABEL_LENGTH and _LABEL.fullmatch(text) is not None


def is_dns_subdomain(text: str) -> bool:
    """Whether the text is a DNS subdomain: what node, pool and object names must be."""
    if not 0 < len(text) <= MAX_SUBDOMAIN_LENGTH:
        return False
    return all(_LABEL.fullmatch(part) is not None for part in text.split("."))


def clean_text(text: str) -> str:
    """A device's own text as a value: one line, valid UTF-8, at most 64 bytes of it.

    Control characters, lone surrogates and unassigned code points become a space, runs of
    spaces become one, and the cut falls between letters, never inside one nor before the marks
    that belong to it. The result may be empty; such an attribute is left out.
    """
    visible = (" " if unicodedata.category(c) in _NOT_TEXT else c for c in text)
    words = " ".join("".join(visible).split())
    end = len(words.encode()[:MAX_VALUE_BYTES].decode(errors="ignore"))
    if end < len(words):
        while end and unicodedata.combining(words[end]):
            end -= 1
    return words[:end].rstrip()


def shorten(text: str, limit: int) -> str:
    """The ASCII text itself, or its beginning and a hash of all of it, at most `limit` long.

    Two texts that differ give two results, also when only their ends differ.
    """
    if len(text) <= limit:
        return text
    return f"{text[: limit - _HASH_DIGITS - 1].rstrip('-.')}-{digest(text)}"


def digest(*parts: str) -> str:
    """Twelve hex digits that stand for these texts, the same everywhere and always."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_HASH_DIGITS]


_NOT_TEXT = frozenset({"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"})
