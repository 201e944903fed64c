# SPDX-License-Identifier: Apache-2.0
"""The paragraph about a claim or a pod."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cli.kubectl.make import facts, node, pod, record, waiting
from tests.unit.controller.make import STICK, claim
from usbdra import errors
from usbdra.cli.kubectl.explain import OTHERWISE, REMEDIES, explain_claim, explain_pod
from usbdra.controller.hubs import HubUse

FREE = (HubUse("b", "high", 8, ()),)


def test_without_a_certain_cause_the_scheduler_is_quoted() -> None:
    known = facts(record(), hubs=FREE, nodes={"b": node("b")})
    text = explain_claim(waiting(), known, pod("b", "0/2 nodes"))
    assert text == "Claim lab/c is not allocated. The scheduler says: 0/2 nodes"
    assert "nothing stands in its way" in explain_claim(waiting(), facts(record()))


def test_who_may_not_see_hubs_and_devices_of_the_cluster_is_told_nothing_wrong() -> None:
    own = {**record(), "metadata": {"name": STICK, "namespace": "lab"}, "spec": None}
    text = explain_claim(waiting(), facts(own), pod("b", "0/2 nodes"))
    assert text == "Claim lab/c is not allocated. The scheduler says: 0/2 nodes"


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"ready": True, "pods": ("p",)}, "and it is attached: as said."),
        (
            {"ready": False, "reason": "LinkLost", "pods": ("p",)},
            "and it cannot be used now (LinkLost): as said; its node tries again by itself; look "
            "at node a and the network between.",
        ),
        (
            {"ready": False, "reason": "PeerRefused", "pods": ("p",)},
            "and it cannot be used now (PeerRefused): as said; see whether the device is assigned "
            "to this namespace, and the agent's log on node a.",
        ),
        (
            {"ready": False, "reason": "StateError", "pods": ("p",)},
            f"and it cannot be used now (StateError): as said; {OTHERWISE}.",
        ),
        ({"pods": ("p",)}, "and the node of pod p has not attached it yet; see that the agent "),
        ({}, "and no pod holds it; it is given back soon."),
    ],
)
def test_an_allocated_claim_says_how_far_it_is(state: dict[str, Any], said: str) -> None:
    text = explain_claim(claim("lab", "c", **state), facts())
    assert text.startswith(f"Claim lab/c has device {STICK} of node a, {said}")


def test_a_node_that_could_not_attach_is_quoted_with_the_remedy() -> None:
    known = facts(warnings={"c": "Unreachable: nobody answers at 192.0.2.1"})
    assert explain_claim(claim("lab", "c", pods=("p",)), known) == (
        f"Claim lab/c has device {STICK} of node a, and the node of pod p could not attach it. "
        "Unreachable: nobody answers at 192.0.2.1; see that node a and its agent run, and that "
        "its port is not blocked."
    )


def test_every_remedy_is_for_a_reason_that_there_is() -> None:
    def family(kind: type[errors.UsbdraError]) -> set[str]:
        return {kind.reason}.union(*map(family, kind.__subclasses__()))

    assert set(REMEDIES) <= family(errors.UsbdraError)


def test_a_claim_on_its_way_out() -> None:
    text = explain_claim(waiting(deletionTimestamp="now"), facts(record()))
    assert text.startswith("Claim lab/c is being deleted, so no pod can take it any more; make it")


def test_a_pods_claims_are_explained_one_after_the_other() -> None:
    asks = pod("b")
    asks["spec"]["resourceClaims"] += [
        {"name": "own", "resourceClaimTemplateName": "t"},
        {"name": "gone", "resourceClaimName": "gone"},
    ]
    text = explain_pod(asks, {"c": waiting()}, facts(record("office")))
    assert text == (
        f"Claim lab/c waits for device {STICK}: it is assigned to namespace office; who may "
        f"assign devices gives it to you: kubectl usb assign {STICK} -n lab. "
        "Pod lab/p waits for its claim of template t: see that the template exists (kubectl get "
        "resourceclaimtemplates). Pod lab/p waits for claim gone, which does not exist; make it, "
        "or have the device assigned to this namespace."
    )
    asks["spec"]["resourceClaims"] = []
    assert explain_pod(asks, {}, facts()) == "Pod lab/p asks for no claim."


RESOURCE = "usb.example.com/stick"
CLASS = {"stick": {"spec": {"extendedResourceName": RESOURCE}}}


def by_resource(resource: str, node: str = "", message: str = "") -> dict[str, Any]:
    limits = {"cpu": "1", resource: "1"}
    return pod(node, message, resourceClaims=[], containers=[{"resources": {"limits": limits}}])


def test_an_extended_resource_is_a_device_of_its_class() -> None:
    known = facts(record(), classes=CLASS)
    assert explain_pod(by_resource(RESOURCE, message="Insufficient"), {}, known) == (
        f"Pod lab/p asks for {RESOURCE}, a device of class stick. The scheduler says: Insufficient"
    )
    assert explain_pod(by_resource("example.com/gpu"), {}, known) == "Pod lab/p asks for no claim."
    text = explain_pod(by_resource("deviceclass.resource.kubernetes.io/none"), {}, known)
    assert text.startswith(
        "Pod lab/p cannot be allocated: its request deviceclass.resource.kubernetes.io/none names "
        "DeviceClass none, which does not exist; make it"
    )


def test_an_extended_resource_of_usb_devices_has_their_causes() -> None:
    selector = {"cel": {"expression": f'device.attributes["{facts().driver}"].kind == "usb"'}}
    classes = {"stick": {"spec": {"extendedResourceName": RESOURCE, "selectors": [selector]}}}
    text = explain_pod(by_resource(RESOURCE), {}, facts(record(Ready="NotFound"), classes=classes))
    assert text == (
        f"Pod lab/p waits for device {STICK}: NotFound it is (NotFound); plug it in again, or see "
        "that its node and the agent there run."
    )


def test_an_extended_resource_that_was_given_is_explained_by_its_claim() -> None:
    given = by_resource(RESOURCE)
    given["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": "made"}
    found = claim("lab", "made", ready=True, pods=("p",))
    text = explain_pod(given, {"made": found}, facts(classes=CLASS))
    assert text == f"Claim lab/made has device {STICK} of node a, and it is attached: as said."
