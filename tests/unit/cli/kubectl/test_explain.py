# SPDX-License-Identifier: Apache-2.0
"""Each cause that the API can show, and the sentence for it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.controller.make import CONTRACT, DRIVER, STICK, claim
from usbdra.cli.kubectl.explain import Facts, explain_claim, explain_pod
from usbdra.cli.kubectl.views import HubUse


def record(namespace: str = "lab", **reasons: str) -> dict[str, Any]:
    """A NodeUSBDevice at 480 Mbit/s on node a; `Ready="NotFound"` and the like change it."""
    found = {"Ready": "Ready", "Assigned": "Assigned", "Attached": "Available", **reasons}
    good = ("Ready", "Assigned")
    return {
        "metadata": {"name": STICK},
        "spec": {"assignedNamespace": namespace},
        "status": {
            "nodeName": "a",
            "attributes": {"name": STICK, "nodeName": "a", "speed": 480},
            "conditions": [
                {"type": t, "status": str(r in good), "reason": r, "message": f"{r} it is"}
                for t, r in found.items()
            ],
        },
    }


def waiting(**meta: Any) -> dict[str, Any]:
    labels = {CONTRACT.device_key: STICK}
    own = {"namespace": "lab", "name": "c", "uid": "own", "labels": labels}
    return {"metadata": {**own, **meta}}


def pod(node: str = "", message: str = "") -> dict[str, Any]:
    selector = {"kubernetes.io/hostname": node} if node else {}
    condition = {"type": "PodScheduled", "status": "False", "reason": "", "message": message}
    return {
        "metadata": {"namespace": "lab", "name": "p"},
        "spec": {
            "nodeSelector": selector,
            "resourceClaims": [{"name": "stick", "resourceClaimName": "c"}],
        },
        "status": {"conditions": [condition] if message else []},
    }


def facts(*devices: dict[str, Any], claims: Any = (), hubs: Any = ()) -> Facts:
    named = {item["metadata"]["name"]: item for item in devices}
    return Facts(DRIVER, CONTRACT.device_key, named, claims, hubs)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (facts(), "there is no device of this name for you to see (any more)."),
        (facts(record(Ready="NotFound")), "NotFound it is (NotFound)."),
        (facts(record(Ready="NotReady")), "NotReady it is (NotReady)."),
        (facts(record("office")), "it is assigned to namespace office."),
        (facts(record("")), "it is assigned to no namespace."),
        (facts(record(Assigned="InProgress")), "its assignment is on its way: InProgress it is."),
        (
            facts(record(), claims=[claim("lab", "other", pods=("q",))]),
            "claim lab/other has it, used by q.",
        ),
        (
            facts(record(), hubs=[HubUse("b", "high", 1, ("x/y",)), HubUse("b", "super", 8, ())]),
            "no high-speed port is free on node b (NoFreeUSBIPPort): all 1 are taken, by x/y.",
        ),
        (
            facts(record(), hubs=[HubUse("b", "super", 8, ())]),
            "node b offers no high-speed port: its agent does not run, or the kernel has no "
            "vhci_hcd (usbdra doctor says more there).",
        ),
    ],
)
def test_a_claim_that_waits_names_its_cause(state: Facts, said: str) -> None:
    text = explain_claim(waiting(), state, pod("b", "0/2 nodes are available"))
    assert text == f"Claim lab/c waits for device {STICK}: {said}"


def test_without_a_certain_cause_the_scheduler_is_quoted() -> None:
    hubs = [HubUse("b", "high", 8, ())]
    text = explain_claim(waiting(), facts(record(), hubs=hubs), pod("b", "0/2 nodes"))
    assert text == "Claim lab/c is not allocated. The scheduler says: 0/2 nodes"
    assert "nothing stands in its way" in explain_claim(waiting(), facts(record()))


def test_who_may_not_see_hubs_and_devices_of_the_cluster_is_told_nothing_wrong() -> None:
    own = {**record(), "metadata": {"name": STICK, "namespace": "lab"}, "spec": None}
    text = explain_claim(waiting(), facts(own, hubs=None), pod("b", "0/2 nodes"))
    assert text == "Claim lab/c is not allocated. The scheduler says: 0/2 nodes"


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"ready": True, "pods": ("p",)}, "and it is attached: as said."),
        (
            {"ready": False, "reason": "LinkLost", "pods": ("p",)},
            "and it cannot be used now (LinkLost): as said.",
        ),
        ({"pods": ("p",)}, "and the node of pod p has not attached it yet; the claim's events"),
        ({}, "and no pod holds it; it is given back soon."),
    ],
)
def test_an_allocated_claim_says_how_far_it_is(state: dict[str, Any], said: str) -> None:
    text = explain_claim(claim("lab", "c", **state), facts())
    assert text.startswith(f"Claim lab/c has device {STICK} of node a, {said}")


def test_a_claim_on_its_way_out() -> None:
    text = explain_claim(waiting(deletionTimestamp="now"), facts(record()))
    assert text == "Claim lab/c is being deleted, so no pod can take it any more."


def test_a_pods_claims_are_explained_one_after_the_other() -> None:
    asks = pod("b")
    asks["spec"]["resourceClaims"] += [
        {"name": "own", "resourceClaimTemplateName": "t"},
        {"name": "gone", "resourceClaimName": "gone"},
    ]
    text = explain_pod(asks, {"c": waiting()}, facts(record("office")))
    assert text == (
        f"Claim lab/c waits for device {STICK}: it is assigned to namespace office. "
        "Pod lab/p waits for its claim of template t: see that the template exists (kubectl get "
        "resourceclaimtemplates). Pod lab/p waits for claim gone, which does not exist."
    )
    asks["spec"]["resourceClaims"] = []
    assert explain_pod(asks, {}, facts()) == "Pod lab/p asks for no claim."
