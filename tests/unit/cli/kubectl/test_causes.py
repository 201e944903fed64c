# SPDX-License-Identifier: Apache-2.0
"""Each cause that the API can show, its sentence and its remedy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cli.kubectl.make import by_cel, facts, node, pod, record, waiting
from tests.unit.controller.make import CONTRACT, STICK, claim
from usbdra.cli.kubectl.causes import cause, of_claim
from usbdra.cli.kubectl.known import Facts, Seen
from usbdra.controller.hubs import HubUse
from usbdra.controller.published import Reach

ASSIGN = f"who may assign devices gives it to you: kubectl usb assign {STICK} -n lab."
HERE = {"b": node("b")}


def said_of(item: dict[str, Any], known: Facts, at: str = "b") -> str:
    return cause(of_claim(item, known, pod(at)), known)


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (
            facts(),
            "there is no device of this name for you to see (any more); see what there is: kubectl "
            "usb devices -n lab.",
        ),
        (
            facts(record(Ready="NotFound")),
            "NotFound it is (NotFound); plug it in again, or see that its node and the agent there "
            "run.",
        ),
        (
            facts(record(Ready="NotReady")),
            "NotReady it is (NotReady); see what is wrong with the node (kubectl describe node a).",
        ),
        (facts(record("office")), f"it is assigned to namespace office; {ASSIGN}"),
        (facts(record("")), f"it is assigned to no namespace; {ASSIGN}"),
        (
            facts(record(Assigned="InProgress")),
            "its assignment is on its way: InProgress it is; wait for that, or end it.",
        ),
        (
            facts(record(), claims=[claim("lab", "other", pods=("q",))]),
            "claim lab/other has it, used by q; it is free when these pods have ended, or share "
            "that claim on their node.",
        ),
        (
            facts(record(), claims=[claim("lab", "other")]),
            "claim lab/other has it, used by no pod any more; wait a moment, or delete that claim.",
        ),
        (
            facts(record(), nodes={}),
            "node b, where the pod must run, does not exist; change its nodeSelector.",
        ),
        (
            facts(record(), nodes={"b": node("b", "Unknown")}),
            "node b, where the pod must run, is not ready; see what is wrong with it (kubectl "
            "describe node b), or run the pod elsewhere.",
        ),
        (
            facts(record(speed=12), published={(STICK, "a"): Seen(Reach.LOCAL)}),
            "at 12 Mbit/s it is too slow to cross nodes, and the pod must run on node b; run the "
            "pod on node a, or let it cross (agent.forwardLowSpeed, device policy).",
        ),
        (
            facts(record(), published={(STICK, "a"): Seen(Reach.LOCAL)}),
            "its node's policy keeps it there, and the pod must run on node b; run the pod on node "
            "a, or let it cross (agent.forwardLowSpeed, device policy).",
        ),
        (
            facts(record(), published={(STICK, "a"): Seen(Reach.NODE)}),
            "only its own node a sees it (visibility: Node), and the pod must run on node b; use "
            f"the claim {STICK} that its assignment makes, which names it.",
        ),
        (
            facts(record(), hubs=[HubUse("b", "high", 1, ("x/y",)), HubUse("b", "super", 8, ())]),
            "no high-speed port is free on node b (NoFreeUSBIPPort): all 1 are taken, by x/y; end "
            "one of those, or run the pod on another node.",
        ),
        (
            facts(record(speed=5000), hubs=[HubUse("b", "high", 8, ())]),
            "node b offers no super-speed port: its agent does not run, or the kernel has no "
            "vhci_hcd; look at the node's events and at usbdra doctor there, or run the pod "
            "elsewhere.",
        ),
    ],
)
def test_a_claim_that_waits_names_its_cause_and_the_remedy(known: Facts, said: str) -> None:
    assert said_of(waiting(), known) == f"Claim lab/c waits for device {STICK}: {said}"


def test_a_claim_that_could_be_served_has_no_cause() -> None:
    seen = {(STICK, "a"): Seen(Reach.CLUSTER)}
    known = facts(record(), nodes=HERE, published=seen, hubs=[HubUse("b", "high", 8, ())])
    assert said_of(waiting(), known) == ""
    local = facts(record(), published={(STICK, "a"): Seen(Reach.LOCAL)}, nodes={"a": node("a")})
    assert said_of(waiting(), local, "a") == ""


def test_a_port_is_enough_for_a_claim_that_names_its_device() -> None:
    known = facts(record(), published={(STICK, "a"): Seen(Reach.NODE)}, nodes=HERE)
    parameters = {"device": {"name": STICK, "node": "a"}}
    config = [{"opaque": {"parameters": parameters}}]
    named = {**waiting(), "spec": {"devices": {"requests": [], "config": config}}}
    assert said_of(named, known) == ""


def test_a_class_that_does_not_exist_is_the_first_thing_to_say() -> None:
    known = facts(record("office"), classes={})
    assert said_of(waiting(by_cel(device_class="typo")), known) == (
        "Claim lab/c cannot be allocated: its request usb names DeviceClass typo, which does not "
        f"exist; make it, or ask for {CONTRACT.device_class('devices')} (kubectl get "
        "deviceclasses)."
    )


def test_a_selector_finds_the_device_it_means() -> None:
    known = facts(record(Ready="NotReady"), record("x", name="usb-other", node="b"))
    text = said_of(waiting(by_cel("serial=ABC", "node=a")), known)
    assert text.startswith(f"Claim lab/c waits for device {STICK}: NotReady it is (NotReady); see")


def test_a_selector_that_nothing_fits_is_quoted() -> None:
    assert said_of(waiting(by_cel("serial=XYZ")), facts(record())) == (
        "Claim lab/c waits for a USB device with serial XYZ, and no device that you may see is "
        "so; compare with kubectl usb devices -o wide: it may be unplugged, or the text is another."
    )
    assert "there is none for you to see" in said_of(waiting(by_cel()), facts())


def test_of_several_devices_that_fit_each_has_its_cause_and_few_are_listed() -> None:
    five = [record(name=f"usb-{n}", Ready="NotReady") for n in range(5)]
    known = facts(*five)
    text = said_of(waiting(by_cel("vendorID=0951")), known)
    assert text.startswith("Claim lab/c can have none of the 5 devices that fit. usb-0: NotReady")
    assert text.endswith("And 2 more.")
    one_free = facts(*five, record(name="usb-9"))
    assert said_of(waiting(by_cel("vendorID=0951")), one_free) == ""


def test_what_a_selector_says_beyond_equalities_makes_nothing_certain() -> None:
    spec = by_cel("serial=ABC")
    cel = spec["devices"]["requests"][0]["exactly"]["selectors"][0]["cel"]
    cel["expression"] += " || device.driver != 'x'"
    assert said_of(waiting(spec), facts(record())) == ""
    assert "NotReady" in said_of(waiting(spec), facts(record(Ready="NotReady")))


def taint(name: str, value: str = "") -> dict[str, str]:
    return {"key": CONTRACT.key(name), "value": value, "effect": "NoSchedule"}


def test_a_device_without_assignment_is_a_cause_only_where_it_is_nobodys() -> None:
    spec, known = by_cel("serial=ABC"), {(STICK, "a"): Seen(Reach.CLUSTER)}
    assert said_of(waiting(spec), facts(record(""), published=known)) == ""
    fenced = {(STICK, "a"): Seen(Reach.CLUSTER, (taint("unassigned"),))}
    text = said_of(waiting(spec), facts(record(""), published=fenced))
    assert text == f"Claim lab/c waits for device {STICK}: it is assigned to no namespace; {ASSIGN}"


def test_a_taint_that_is_not_tolerated_is_quoted_with_the_toleration_that_helps() -> None:
    seen = {(STICK, "a"): Seen(Reach.CLUSTER, (taint("assigned", "lab"),))}
    known = facts(record(), published=seen, nodes=HERE)
    key = CONTRACT.key("assigned")
    assert said_of(waiting(by_cel("serial=ABC")), known) == (
        f"Claim lab/c waits for device {STICK}: it carries the taint {key}=lab:NoSchedule, which "
        f"request usb does not tolerate; use the claim {STICK} that its assignment made, or add "
        f"the toleration {{key: {key}, operator: Equal, value: lab, effect: NoSchedule}} to the "
        "request."
    )
    good = {"key": key, "operator": "Equal", "value": "lab"}
    assert said_of(waiting(by_cel("serial=ABC", tolerations=[good])), known) == ""


def test_a_link_and_another_drivers_device_are_not_explained() -> None:
    classes: dict[str, Any] = {"gpu": {"spec": {}}, CONTRACT.device_class("vhci"): {"spec": {}}}
    known = facts(classes=classes)
    for name in classes:
        assert said_of(waiting(by_cel(device_class=name)), known) == ""
