# SPDX-License-Identifier: Apache-2.0
"""Which sessions of a host outside are ended: those that are over beyond doubt."""

from __future__ import annotations

import pytest

from tests.fakes.kube import FakeKube
from tests.unit.controller.make import CONTRACT, claim
from usbdra.controller.outsidesessions import SessionCheck
from usbdra.kube import errors
from usbdra.kube.types import NODE, RESOURCE_CLAIM, Object
from usbdra.types import ClaimUid
from usbdra.usbip.extension import ClaimRef, HeldSession

SESSION = HeldSession("k1", "stick", ClaimRef("lab", "one", ClaimUid("uid-lab-one")), "node-b")


def held() -> Object:
    found = claim("lab", "one", node="outside/pi", device="stick", pods=("p",))
    field = {"key": "metadata.name", "operator": "In", "values": ["node-b"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    found["status"]["allocation"]["nodeSelector"] = terms
    return found


@pytest.fixture
def api() -> FakeKube:
    made = FakeKube()
    made.put(NODE, {"metadata": {"name": "node-b"}})
    made.put(RESOURCE_CLAIM, held())
    return made


async def over(api: FakeKube) -> tuple[str, ...]:
    return await SessionCheck(api, CONTRACT).over("pi", [SESSION])


async def test_a_session_whose_claim_has_the_device_stays(api: FakeKube) -> None:
    assert await over(api) == ()
    marked = held()
    marked["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z"
    api.put(RESOURCE_CLAIM, marked)
    assert await over(api) == (), "its pod still runs"


@pytest.mark.parametrize("what", ["claim", "allocation", "another claim", "node", "another node"])
async def test_r48_a_session_whose_claim_or_node_is_gone_is_over(api: FakeKube, what: str) -> None:
    changed = held()
    if what == "claim":
        api.drop(RESOURCE_CLAIM, "one", "lab")
    elif what == "node":
        api.drop(NODE, "node-b")
    else:
        if what == "allocation":
            del changed["status"]["allocation"]
        elif what == "another claim":
            api.drop(RESOURCE_CLAIM, "one", "lab")
            changed["metadata"]["uid"] = "later"
        else:
            (term,) = changed["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"]
            term["matchFields"][0]["values"] = ["node-c"]
        api.put(RESOURCE_CLAIM, changed)
    assert await over(api) == ("k1",)


async def test_an_api_server_that_does_not_answer_proves_nothing(api: FakeKube) -> None:
    api.fail(errors.ApiUnavailable("get", 0, "Away", "no answer"))
    assert await over(api) == ()
