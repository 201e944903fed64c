# SPDX-License-Identifier: Apache-2.0
"""Fields of our JSON bodies: read with a check each, and written.

Owns what a wrong field is told: always its name. Must not know what a body means (extension.py).
"""

from __future__ import annotations

import json
import re
from typing import Any

from usbdra.errors import ProtocolError
from usbdra.usbip import wire

BODY_VERSION = 1
MAX_TEXT_BYTES = 128

_HEX4 = re.compile(r"[0-9a-f]{4}", re.ASCII)


def clean_text(text: str, limit: int = MAX_TEXT_BYTES) -> str:
    """Text of a device or peer made safe for logs and terminals: printable, at most `limit`
    UTF-8 bytes, cut at a letter boundary."""
    printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return printable.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


def dump(fields: dict[str, Any]) -> bytes:
    """A body's bytes."""
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def load_body(body: bytes) -> dict[str, Any]:
    """Parse a body. Depth and number size are bounded by json and the caps on `body`."""
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as exc:
        raise ProtocolError(f"message body is not JSON: {str(exc)[:120]}") from exc
    fields = object_of(value, "message body")
    version = fields.get("v")
    if version != BODY_VERSION or isinstance(version, bool):
        raise ProtocolError(f"message body has version {str(version)[:20]}, not {BODY_VERSION}")
    return fields


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number")


def object_of(value: object, what: str) -> dict[str, Any]:
    """Raises ProtocolError naming `what`."""
    if not isinstance(value, dict):
        raise ProtocolError(f"{what} is not an object")
    return value


def array_of(value: object, what: str, limit: int) -> list[Any]:
    """Raises ProtocolError naming `what`."""
    if not isinstance(value, list) or len(value) > limit:
        raise ProtocolError(f"{what} is not a list of at most {limit}")
    return value


def text_of(fields: dict[str, Any], key: str, default: str | None = None) -> str:
    """Raises ProtocolError naming the field."""
    value = fields.get(key, default)
    if not isinstance(value, str):
        raise ProtocolError(f"{key} is not a text")
    return value


def optional_of(fields: dict[str, Any], key: str) -> str | None:
    """A text for people, None for none. Raises ProtocolError naming the field."""
    value = fields.get(key)
    if value is None:
        return None
    # An empty text says no more than none: packed again it would be left out.
    return clean_text(text_of(fields, key)) or None


def number_of(fields: dict[str, Any], key: str, low: int, high: int) -> int:
    """Raises ProtocolError naming the field."""
    return int_of(fields.get(key), key, low, high)


def int_of(value: object, what: str, low: int, high: int) -> int:
    """Raises ProtocolError naming `what`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ProtocolError(f"{what} is not a whole number")
    return wire.check_number(what, value, low, high)


def triple_of(value: object, what: str) -> tuple[int, int, int]:
    """Class, subclass and protocol. Raises ProtocolError naming `what`."""
    codes = array_of(value, what, 3)
    if len(codes) != 3:
        raise ProtocolError(f"{what} is not three codes")
    first, second, third = (int_of(code, what, 0, 0xFF) for code in codes)
    return first, second, third


def hex4_of(fields: dict[str, Any], key: str) -> str:
    """Raises ProtocolError naming the field."""
    text = text_of(fields, key)
    if not _HEX4.fullmatch(text):
        raise ProtocolError(f"{key} {text[:16]!r} is not four hex digits")
    return text


def matching(fields: dict[str, Any], key: str, pattern: re.Pattern[str]) -> str:
    """A text of this form. Raises ProtocolError naming the field."""
    text = text_of(fields, key)
    if not pattern.fullmatch(text):
        raise ProtocolError(f"{key} {text[:64]!r} is malformed")
    return text
