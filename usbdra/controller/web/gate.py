# SPDX-License-Identifier: Apache-2.0
"""Who asks, and may they: the cluster answers both (TokenReview, SubjectAccessReview).

Owns these questions and how long an answer is believed. Keeps no token, only its hash, and gives
nobody a right: what a user may not do with kubectl, the page does not do either.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from usbdra.exporter.rate import Bucket
from usbdra.kube.reviews import ACCESS_REVIEW, TOKEN_REVIEW, review
from usbdra.kube.types import Kind
from usbdra.kube.verbs import Creates

T = TypeVar("T")

MAX_TOKEN = 6144
"""Characters; aiohttp takes no header above 8190 bytes."""
BELIEVED_SECONDS = 30.0
MAX_KNOWN = 256
UNKNOWN = (5.0, 20)
"""Tokens that nobody knows yet: a second, and at once. More would be a flood of the API server."""

_BEARER = re.compile(rf"(?i:Bearer) +([A-Za-z0-9._~+/=-]{{1,{MAX_TOKEN}}})", re.ASCII)


class TooMany(Exception):
    """More unknown tokens than are asked about."""


@dataclass(frozen=True, slots=True)
class User:
    """Somebody the cluster knows; `subject` as a SubjectAccessReview has it."""

    name: str
    subject: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one kind, of one object where `name` is given."""

    verb: str
    kind: Kind
    name: str = ""

    def __str__(self) -> str:
        name = f" {self.name}" if self.name else ""
        group = f".{self.kind.group}" if self.kind.group else ""
        return f"{self.verb} {self.kind.plural}{group}{name}"


def bearer(header: str) -> str:
    """The token of an Authorization header; empty when there is none, or none that could be."""
    match = _BEARER.fullmatch(header.strip())
    return match[1] if match else ""


class Gate:
    """See the module."""

    def __init__(self, api: Creates, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[float, User]] = OrderedDict()
        self._refused: OrderedDict[bytes, float] = OrderedDict()
        self._bucket = Bucket(*UNKNOWN)

    async def who(self, token: str) -> User | None:
        """The token's owner; None for a token that the cluster does not accept.

        Raises TooMany, and ApiError when the cluster has no answer.
        """
        key, now = hashlib.sha256(token.encode()).digest(), self._clock()
        until, user = self._known.get(key, (0.0, None))
        if now < until:
            return user
        if now < self._refused.get(key, 0.0):
            return None
        if user is None and not self._bucket.take(now):
            raise TooMany
        user = await self._review(token)
        if user is None:
            self._known.pop(key, None)
            _keep(self._refused, key, now + BELIEVED_SECONDS)
        else:
            _keep(self._known, key, (now + BELIEVED_SECONDS, user))
        return user

    async def may(self, user: User, right: Right) -> str | None:
        """None when the user may, else why not. Asked anew each time. Raises ApiError."""
        wanted = {
            "verb": right.verb,
            "group": right.kind.group,
            "version": right.kind.version,
            "resource": right.kind.plural,
        }
        if right.name:
            wanted["name"] = right.name
        spec = {**user.subject, "resourceAttributes": wanted}
        status = await review(self._api, ACCESS_REVIEW, spec)
        if status.get("allowed") is True:
            return None
        why = str(status.get("reason") or "")
        return f"{user.name} may not {right}" + (f": {why}" if why else "")

    async def _review(self, token: str) -> User | None:
        status = await review(self._api, TOKEN_REVIEW, {"token": token})
        user = status.get("user") or {}
        name = str(user.get("username") or "")
        if status.get("authenticated") is not True or not name:
            return None
        subject = {key: user[key] for key in ("uid", "groups", "extra") if user.get(key)}
        return User(name, {"user": name, **subject})


def _keep(known: OrderedDict[bytes, T], key: bytes, value: T) -> None:
    """The newest MAX_KNOWN: those who come with wrong tokens do not push out the others."""
    known[key] = value
    known.move_to_end(key)
    while len(known) > MAX_KNOWN:
        known.popitem(last=False)
