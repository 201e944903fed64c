# SPDX-License-Identifier: Apache-2.0
"""The addresses of a Node object. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any


def internal_addresses(node: Mapping[str, Any]) -> tuple[str, ...]:
    """A Node's InternalIPs, canonical, each once; what is no address is left out."""
    texts = (
        one.get("address", "")
        for one in (node.get("status") or {}).get("addresses") or ()
        if one.get("type") == "InternalIP"
    )
    return tuple(dict.fromkeys(str(ip_address(text)) for text in texts if _is_address(text)))


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
