# SPDX-License-Identifier: Apache-2.0
"""Who asks and what they may is what the cluster says, and for no longer than it is believed."""

from __future__ import annotations

import pytest

from tests.unit.controller.make import CONTRACT
from tests.unit.controller.web.conftest import ADMIN, Cluster
from usbdra.controller.web import gate
from usbdra.controller.web.gate import BELIEVED_SECONDS, Gate, Right, TooMany, User, bearer
from usbdra.kube import errors
from usbdra.kube.types import NAMESPACE


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer abc.DEF-_~+/=", "abc.DEF-_~+/="),
        ("bearer  x", "x"),
        ("", ""),
        ("Bearer ", ""),
        ("Basic abc", ""),
        ("Bearer a b", ""),
        ("Bearer a\x00", ""),
        ("Bearer ä", ""),
        ("Bearer " + "x" * (gate.MAX_TOKEN + 1), ""),
    ],
)
def test_a_token_has_the_form_of_one(header: str, token: str) -> None:
    assert bearer(header) == token


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_an_answer_is_believed_for_a_while() -> None:
    cluster, clock = Cluster(), Clock()
    own = Gate(cluster, clock)
    anna = await own.who(ADMIN)
    assert anna == User("anna", {"user": "anna", "uid": "uid-anna", "groups": ["people"]})
    assert await own.who("wrong") is None
    del cluster.users[ADMIN]
    cluster.users["wrong"] = "late"
    assert await own.who(ADMIN) == anna
    assert await own.who("wrong") is None
    assert len(cluster.reviews) == 2
    clock.now += BELIEVED_SECONDS
    assert await own.who(ADMIN) is None
    assert await own.who("wrong") == User(
        "late", {"user": "late", "uid": "uid-late", "groups": ["people"]}
    )


async def test_guesses_are_slowed_down_and_push_nobody_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, clock = Cluster(), Clock()
    monkeypatch.setattr(gate, "MAX_KNOWN", 3)
    own = Gate(cluster, clock)
    await own.who(ADMIN)
    for number in range(gate.UNKNOWN[1] - 1):
        assert await own.who(f"guess-{number}") is None
    with pytest.raises(TooMany):
        await own.who("one more")
    asked = len(cluster.reviews)
    assert (await own.who(ADMIN)) is not None
    assert len(cluster.reviews) == asked
    clock.now += 1 / gate.UNKNOWN[0]
    assert await own.who("one more") is None


async def test_rights_are_asked_for_each_time() -> None:
    cluster = Cluster()
    own = Gate(cluster)
    user = User("anna", {"user": "anna"})
    patch = Right("patch", CONTRACT.node_device, "stick")
    assert await own.may(user, patch) is None
    assert await own.may(user, Right("list", NAMESPACE)) is None
    cluster.rights["anna"] = set()
    wanted = f"anna may not patch nodeusbdevices.{CONTRACT.group} stick: no RBAC rule"
    assert await own.may(user, patch) == wanted
    assert await own.may(user, Right("list", NAMESPACE)) == (
        "anna may not list namespaces: no RBAC rule"
    )


async def test_a_cluster_that_does_not_answer_has_said_nothing() -> None:
    cluster = Cluster()
    own = Gate(cluster)
    cluster.fail(errors.ApiUnavailable("POST", 0, "NoAnswer", "no route"))
    with pytest.raises(errors.ApiUnavailable):
        await own.who(ADMIN)
    cluster.fail(None)
    assert (await own.who(ADMIN)) is not None
