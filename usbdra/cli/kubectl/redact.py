# SPDX-License-Identifier: Apache-2.0
"""What may leave a cluster in a support bundle: objects and logs without secrets. Pure.

Owns what is taken out. What is kept is named; all else goes: a text that is a secret looks like
any other. Logs, which nobody can name, lose what has the form of a credential.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

REMOVED = "(removed)"

_METADATA = (
    "name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "generation",
    "resourceVersion", "finalizers", "ownerReferences", "labels",
)  # fmt: skip
_NEVER = ("metadata", "data", "stringData", "binaryData")
_ENVIRONMENT = re.compile(r"USBDRA_[A-Z_]+")
_CREDENTIAL = r"(?:password|passwd|secret|token|api[-_]?key|credential)s?"
_OF_CREDENTIAL = re.compile(_CREDENTIAL, re.IGNORECASE)
_PATTERNS = tuple(
    (re.compile(pattern, flags), kept)
    for pattern, flags, kept in (
        (r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)", re.DOTALL, ""),
        (r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?", 0, ""),  # a JWT
        (r"\b(Bearer|Basic)\s+[^\s\"',;]+", re.IGNORECASE, r"\1 "),
        (r"(://[^/\s:@]*:)[^/\s@]+(?=@)", 0, r"\1"),
        (
            rf"({_CREDENTIAL}[\"']?\s*[=:]\s*[\"']?)[^\s\"',;}}&]+",
            re.IGNORECASE,
            r"\1",
        ),
    )
)


def scrub(text: str) -> str:
    """The text without what has the form of a key, a token or a password."""
    for pattern, kept in _PATTERNS:
        text = pattern.sub(kept + REMOVED, text)
    return text


def cleaned(item: Mapping[str, Any], group: str) -> dict[str, Any]:
    """One object of the API as a bundle holds it.

    group: of whose annotations the values are kept; of others the names are.
    """
    meta = item["metadata"]
    kept = {key: meta[key] for key in _METADATA if key in meta}
    annotations = meta.get("annotations") or {}
    if annotations:
        kept["annotations"] = {
            key: scrub(value) if key.partition("/")[0] == group else REMOVED
            for key, value in annotations.items()
        }
    rest = {key: value for key, value in item.items() if key not in _NEVER}
    cleaned: dict[str, Any] = _walk({**rest, "metadata": kept}, group)
    return cleaned


def _walk(value: Any, group: str) -> Any:
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, list):
        return [_walk(one, group) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: _field(key, one, group) for key, one in value.items()}


def _field(key: str, value: Any, group: str) -> Any:
    """What hides in fields of these names is known; a walk looks into all others."""
    if key == "managedFields" or (isinstance(value, str) and _OF_CREDENTIAL.search(key)):
        return REMOVED
    if key == "env" and isinstance(value, list):
        return [_variable(one) for one in value]
    if key == "opaque" and isinstance(value, dict):
        ours = value.get("driver") == f"usb.{group}"
        return _walk(value, group) if ours else {**value, "parameters": REMOVED}
    if key == "template" and isinstance(value, dict) and "metadata" in value:
        return cleaned(value, group)
    return _walk(value, group)


def _variable(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A container's variable: its value only where it is one of our settings."""
    name = str(entry.get("name", ""))
    if "value" in entry and not _ENVIRONMENT.fullmatch(name):
        return {"name": name, "value": REMOVED}
    return {key: _walk(value, "") for key, value in entry.items()}
