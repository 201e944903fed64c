# SPDX-License-Identifier: Apache-2.0
"""Who may read a path, by what the API server says of a token."""

from __future__ import annotations

from typing import Any

import pytest

from usbdra.kube.errors import ApiUnavailable
from usbdra.kube.reviews import MAX_KNOWN, PathReview
from usbdra.kube.types import Kind, Object


class Server:
    """Knows the tokens `good` and `poor`; the first may read."""

    def __init__(self) -> None:
        self.asked: list[Object] = []
        self.away = False

    async def create(self, kind: Kind, body: Object, namespace: str | None = None) -> Object:
        if self.away:
            raise ApiUnavailable("POST", 0, "NoAnswer", "away")
        self.asked.append(body)
        spec: dict[str, Any] = body["spec"]
        if kind.kind == "TokenReview":
            known = spec["token"] in ("good", "poor")
            user = {"username": spec["token"], "groups": ["g"]}
            return {"status": {"authenticated": known, "user": user} if known else {}}
        return {"status": {"allowed": spec["user"] == "good"}}


@pytest.mark.parametrize(("token", "status"), [("good", 200), ("poor", 403), ("x", 401), ("", 401)])
async def test_the_api_server_decides(token: str, status: int) -> None:
    assert await PathReview(Server(), "/metrics", lambda now: True).status(token) == status


async def test_the_right_that_is_asked_for() -> None:
    server = Server()
    await PathReview(server, "/metrics", lambda now: True).status("good")
    spec = server.asked[1]["spec"]
    assert spec["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
    assert (spec["user"], spec["groups"]) == ("good", ["g"])


async def test_an_answer_holds_for_a_while() -> None:
    server = Server()
    review = PathReview(server, "/metrics", lambda now: True)
    assert [await review.status("good") for _ in range(3)] == [200, 200, 200]
    assert len(server.asked) == 2


async def test_strangers_tokens_do_not_flood_the_api_server() -> None:
    server, left = Server(), [3]

    def take(now: float) -> bool:
        left[0] -= 1
        return left[0] >= 0

    review = PathReview(server, "/metrics", take)
    found = [await review.status(f"token-{n}") for n in range(5)]
    assert found == [401, 401, 401, 429, 429]
    assert len(server.asked) == 3


async def test_what_is_remembered_is_bounded_and_holds_no_token() -> None:
    review = PathReview(Server(), "/metrics", lambda now: True)
    for n in range(MAX_KNOWN + 5):
        await review.status(f"token-{n}")
    assert len(review._known) == MAX_KNOWN
    assert not any(b"token" in key for key in review._known)


async def test_without_an_answer_nobody_reads_and_nothing_is_remembered() -> None:
    server = Server()
    server.away = True
    review = PathReview(server, "/metrics", lambda now: True)
    assert await review.status("good") == 503
    server.away = False
    assert await review.status("good") == 200
    assert await review.status("g" * 10_000) == 401
