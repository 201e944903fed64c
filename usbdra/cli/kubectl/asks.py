# SPDX-License-Identifier: Apache-2.0
"""What a claim that somebody wrote by hand asks for, as far as it can be told without CEL. Pure.

Owns the reading of selectors that are nothing but equalities joined by `&&`, which is how devices
are named in practice (docs/claims.md). What is not understood narrows nothing down: `complete`
is False then, and nobody may say that no device fits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Object = Mapping[str, Any]

_SAID = frozenset(
    {"name", "node", "vendorID", "productID", "bcd", "serial", "manufacturer", "product", "speed"}
)
"""Attributes that objects and slices have under the same name."""

MAX_EXPRESSION = 4096
"""Letters of a selector that is looked at; the API takes 10 KiB."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of a claim, or one alternative of it."""

    request: str
    device_class: str
    terms: Mapping[str, str] = field(default_factory=dict)
    """Attributes of our driver that must have this value."""
    complete: bool = True
    """Whether `terms` are all there is to fulfil."""
    tolerations: tuple[Object, ...] = ()

    def matches(self, said: Mapping[str, Any]) -> bool:
        """Whether a device whose object says this of it can fulfil the terms.

        Of what objects never say, and slices do, any value will do.
        """
        return all(str(said.get(key, "")) == self.terms[key] for key in self.terms.keys() & _SAID)

    def tolerates(self, taint: Object) -> bool:
        """As the scheduler decides (resource.k8s.io/v1 DeviceToleration)."""
        return any(_tolerates(toleration, taint) for toleration in self.tolerations)


def read(claim: Object, driver: str) -> list[Ask]:
    """Every request of a claim, each alternative of `firstAvailable` by itself, in order."""
    return [
        _ask(name, body, driver)
        for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ()
        for name, body in _bodies(request)
    ]


def narrowed(ask: Ask, device_class: Object, driver: str) -> Ask:
    """The request with what its DeviceClass asks for besides."""
    selectors = (device_class.get("spec") or {}).get("selectors") or ()
    terms, complete = _terms(selectors, driver)
    return replace(ask, terms={**terms, **ask.terms}, complete=ask.complete and complete)


def _bodies(request: Object) -> Iterator[tuple[str, Object]]:
    name = str(request["name"])
    if request.get("exactly"):
        yield name, request["exactly"]
    for alternative in request.get("firstAvailable") or ():
        yield f"{name}/{alternative['name']}", alternative


def _ask(name: str, body: Object, driver: str) -> Ask:
    terms, complete = _terms(body.get("selectors") or (), driver)
    tolerations = tuple(body.get("tolerations") or ())
    return Ask(name, str(body.get("deviceClassName", "")), terms, complete, tolerations)


def _terms(selectors: Iterable[Object], driver: str) -> tuple[dict[str, str], bool]:
    """Equalities of all selectors, and whether there is nothing else in them."""
    attribute = rf'device\.attributes\[["\']{re.escape(driver)}["\']\]\.(\w+)'
    equal = re.compile(rf'{attribute}\s*==\s*(?:"([^"\\]*)"|\'([^\'\\]*)\')')
    own = rf'device\.driver\s*==\s*["\']{re.escape(driver)}["\']'
    harmless = re.compile(rf"(?:has\({attribute}\)|{own})")
    terms: dict[str, str] = {}
    complete = True
    for selector in selectors:
        text = str((selector.get("cel") or {}).get("expression", ""))
        if len(text) > MAX_EXPRESSION:
            complete = False
            continue
        parts = [part.strip() for part in text.split("&&")]
        for part in parts:
            if found := equal.fullmatch(part):
                terms[found[1]] = found[2] if found[2] is not None else found[3]
            elif not harmless.fullmatch(part):
                complete = False
    return terms, complete


def _tolerates(toleration: Object, taint: Object) -> bool:
    effect, key = toleration.get("effect"), toleration.get("key")
    if effect and effect != taint.get("effect"):
        return False
    if key and key != taint.get("key"):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(key) and toleration.get("value", "") == taint.get("value", "")
