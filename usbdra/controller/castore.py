# SPDX-License-Identifier: Apache-2.0
"""How the cluster's CAs are written down: a Secret for their keys, a ConfigMap for what is
believed. Pure.

Owns the two objects' contents. A Secret that cannot be read is an error and never replaced: the
administrator may have a reason, or a backup. Must not talk to the API.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from usbdra.controller.rotation import Authorities
from usbdra.errors import ConfigError
from usbdra.pki import trust
from usbdra.pki.authority import Pair, read_pair

if TYPE_CHECKING:
    from cryptography import x509

BUNDLE_KEY = "ca.crt"
"""The ConfigMap's key: PEM of what is believed."""


@dataclass(frozen=True, slots=True)
class Names:
    """Where the two objects are."""

    namespace: str
    secret: str = "usbdra-ca"  # noqa: S105 an object's name
    bundle: str = "usbdra-trust"


def rotation_asked(secret: Mapping[str, Any], group: str) -> bool:
    """Whether somebody annotated the Secret to have its CA replaced."""
    return _annotation(group) in (secret["metadata"].get("annotations") or {})


def secret_of(
    authorities: Authorities,
    names: Names,
    group: str,
    old: Mapping[str, Any] | None = None,
    *,
    asked: bool = False,
) -> dict[str, Any]:
    """The Secret that holds these CAs, as a change of `old` if there is one. A request for a
    rotation stays with it for as long as it is `asked`, which ends when the rotation begins."""
    meta: dict[str, Any] = {"name": names.secret, "namespace": names.namespace}
    if old is not None:
        meta = {**old["metadata"]}
        notes = {**(meta.get("annotations") or {})}
        if not asked:
            notes.pop(_annotation(group), None)
        meta["annotations"] = notes
    data = {
        "ca.crt": authorities.signing.cert_pem(),
        "ca.key": authorities.signing.key_pem(),
        "since": authorities.since.isoformat().encode(),
    }
    if authorities.next is not None:
        data["next.crt"] = authorities.next.cert_pem()
        data["next.key"] = authorities.next.key_pem()
    if authorities.previous is not None:
        data["previous.crt"] = trust.write_bundle([authorities.previous])
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": meta,
        "type": "Opaque",
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }


def authorities_of(secret: Mapping[str, Any]) -> Authorities:
    """The CAs of a Secret. Raises ConfigError naming the key that cannot be used."""
    meta = secret["metadata"]
    what = f"Secret {meta.get('namespace', '')}/{meta['name']}"
    data = {key: _decoded(value, what, key) for key, value in (secret.get("data") or {}).items()}
    signing = _pair(data, "ca", what)
    if signing is None:
        raise ConfigError(f"{what} has no ca.crt; delete it, and a new CA is made")
    previous = data.get("previous.crt")
    return Authorities(
        signing,
        _since(data.get("since", b""), what),
        next=_pair(data, "next", what),
        previous=trust.read_bundle(previous, f"{what}, previous.crt")[0] if previous else None,
    )


def bundle_of(
    authorities: Authorities, names: Names, old: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The ConfigMap of what is believed, as a change of `old` if there is one."""
    meta = {**old["metadata"]} if old else {"name": names.bundle, "namespace": names.namespace}
    text = trust.write_bundle(authorities.believed).decode()
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": meta,
        "data": {**((old or {}).get("data") or {}), BUNDLE_KEY: text},
    }


def published(bundle: Mapping[str, Any] | None) -> tuple[x509.Certificate, ...]:
    """What a ConfigMap says is believed; nothing when it says nothing readable."""
    text = ((bundle or {}).get("data") or {}).get(BUNDLE_KEY, "")
    try:
        return trust.read_bundle(text.encode(), "the bundle")
    except ConfigError:
        return ()


def _annotation(group: str) -> str:
    return f"{group}/rotate"


def _pair(data: Mapping[str, bytes], name: str, what: str) -> Pair | None:
    cert, key = f"{name}.crt", f"{name}.key"
    if cert not in data and key not in data:
        return None
    return read_pair(data.get(cert, b""), data.get(key, b""), f"{what}, {cert}", f"{what}, {key}")


def _decoded(value: str, what: str, key: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigError(f"{what}, {key}: not base64") from error


def _since(data: bytes, what: str) -> datetime:
    try:
        since = datetime.fromisoformat(data.decode("ascii", "replace"))
    except ValueError as error:
        raise ConfigError(f"{what}, since: not a time") from error
    if since.tzinfo is None:
        raise ConfigError(f"{what}, since: a time without its zone")
    return since
