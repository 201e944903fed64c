# SPDX-License-Identifier: Apache-2.0
"""Whether the API server knows a bearer token and lets its owner read a path.

Owns the two questions (TokenReview, SubjectAccessReview) and how long an answer holds, as the
kubelet's own endpoints do. A token is kept as its hash alone. Must not serve anything.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from . import errors
from .types import Kind
from .verbs import Creates

TOKEN_REVIEW = Kind("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", False)
ACCESS_REVIEW = Kind(
    "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", False
)
ALLOWED_SECONDS, REFUSED_SECONDS = 120.0, 30.0
MAX_KNOWN = 64
MAX_TOKEN = 8192


async def review(api: Creates, kind: Kind, spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The status that the API server gives to a question of this kind. Raises ApiError."""
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": dict(spec)}
    return (await api.create(kind, body)).get("status") or {}


@dataclass(frozen=True, slots=True)
class _Known:
    status: int
    until: float


class PathReview:
    """Who may `get` a path. `take` says whether one more question may be asked now: strangers
    with tokens of their own invention must not make us flood the API server."""

    def __init__(self, api: Creates, path: str, take: Callable[[float], bool]) -> None:
        self._api = api
        self._path = path
        self._take = take
        self._known: OrderedDict[bytes, _Known] = OrderedDict()

    async def status(self, token: str) -> int:
        """The HTTP status for who shows this token: 200, 401, 403, 429, or 503 when the API
        server does not say."""
        if not token or len(token) > MAX_TOKEN:
            return 401
        now = asyncio.get_running_loop().time()
        key = hashlib.sha256(token.encode()).digest()
        known = self._known.get(key)
        if known is not None and now < known.until:
            return known.status
        if not self._take(now):
            return 429
        try:
            status = await self._ask(token)
        except errors.ApiError:
            return 503
        seconds = ALLOWED_SECONDS if status == 200 else REFUSED_SECONDS
        self._known[key] = _Known(status, now + seconds)
        self._known.move_to_end(key)
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return status

    async def _ask(self, token: str) -> int:
        seen = await review(self._api, TOKEN_REVIEW, {"token": token})
        user = seen.get("user") or {}
        if seen.get("authenticated") is not True or seen.get("error"):
            return 401
        spec = {
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups") or [],
            "extra": user.get("extra") or {},
            "nonResourceAttributes": {"path": self._path, "verb": "get"},
        }
        answer = await review(self._api, ACCESS_REVIEW, spec)
        return 200 if answer.get("allowed") is True else 403
