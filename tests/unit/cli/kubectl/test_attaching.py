# SPDX-License-Identifier: Apache-2.0
"""`kubectl usb attach` and `detach`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cli.conftest import Cli
from tests.unit.cli.kubectl.conftest import Cluster
from tests.unit.controller.make import CONTRACT, STICK
from usbdra.kube.types import Kind

KIND = CONTRACT.attachment


def answers(cluster: Cluster, *conditions: tuple[str, str, str]) -> None:
    """The controller, which gives every new USBAttachment these (type, status, message)."""

    def tell(verb: str, kind: Kind, item: dict[str, Any]) -> None:
        if verb == "create":
            shown = [
                {"type": t, "status": s, "reason": "R", "message": m} for t, s, m in conditions
            ]
            cluster.put(kind, {**item, "status": {"conditions": shown}})

    cluster.after_write = tell


def attachment(name: str = STICK, **meta: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "lab", **meta},
        "spec": {"device": STICK, "virtualMachine": {"name": "win"}},
    }


@pytest.mark.parametrize(
    ("words", "target"),
    [
        (("--vm", "win"), {"virtualMachine": {"name": "win"}}),
        (("--pod", "p"), {"pod": {"name": "p"}}),
        (("--pod", "p", "-c", "main"), {"pod": {"name": "p", "container": "main"}}),
    ],
)
def test_attach_makes_an_attachment_and_waits(
    usb: Cli, cluster: Cluster, words: tuple[str, ...], target: dict[str, Any]
) -> None:
    answers(cluster, ("Ready", "True", "fine"), ("Attached", "True", "in win"))
    result = usb("attach", STICK, *words)
    assert (result.code, result.out) == (0, f"{STICK}: in win\n")
    (made,) = cluster.all(KIND)
    assert made["metadata"]["namespace"] == "lab"
    assert made["spec"] == {"device": STICK, **target}


def test_attach_says_what_it_waits_for(usb: Cli, cluster: Cluster) -> None:
    answers(cluster, ("Ready", "False", "virtual machine win does not run"))
    result = usb("attach", STICK, "--vm", "win")
    assert result.code == 1
    assert result.out == f"{STICK}: not done yet: virtual machine win does not run\n"


def test_attach_again_waits_again_and_another_target_is_refused(usb: Cli, cluster: Cluster) -> None:
    shown = [{"type": "Attached", "status": "True", "reason": "R", "message": "in win"}]
    cluster.put(KIND, {**attachment(), "status": {"conditions": shown}})
    assert usb("attach", STICK, "--vm", "win").code == 0
    result = usb("attach", STICK, "--pod", "p")
    assert result.code == 2
    assert result.err == (
        f"usbdra: USBAttachment lab/{STICK} plugs it into virtual machine win; kubectl usb detach "
        f"{STICK} -n lab first\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name either --vm or --pod"),
        (("--vm", "a", "--pod", "b"), "name either --vm or --pod"),
        (("--vm", "a", "-c", "main"), "--container is for --pod"),
    ],
)
def test_a_target_is_a_machine_or_a_pod(usb: Cli, words: tuple[str, ...], said: str) -> None:
    result = usb("attach", STICK, *words)
    assert (result.code, result.err) == (2, f"usbdra: {said}\n")


def test_detach_deletes_and_waits(usb: Cli, cluster: Cluster) -> None:
    cluster.put(KIND, attachment("other-name"))
    result = usb("detach", STICK)
    assert (result.code, result.out) == (0, f"{STICK}: detached\n")
    assert cluster.all(KIND) == []


def test_detach_that_takes_long_says_how_far_it_is(usb: Cli, cluster: Cluster) -> None:
    shown = [{"type": "Attached", "status": "True", "reason": "R", "message": "in win"}]
    stored = {**attachment(), "status": {"conditions": shown}}
    cluster.put(KIND, stored)

    def finalizer(verb: str, kind: Kind, item: dict[str, Any]) -> None:
        if verb == "delete":
            cluster.put(kind, item)

    cluster.after_write = finalizer
    result = usb("detach", STICK, "-o", "json")
    assert result.code == 1
    assert '"done": false, "message": "in win"' in result.out


def test_what_a_machine_lists_is_not_detached_behind_its_back(usb: Cli, cluster: Cluster) -> None:
    owner = {"kind": "VirtualMachine", "name": "win"}
    cluster.put(KIND, attachment("made", ownerReferences=[owner]))
    result = usb("detach", STICK)
    assert result.err == (
        f"usbdra: {STICK} is in the list of VirtualMachine lab/win; take it out of its "
        "spec.usbDevices, and it is detached\n"
    )
    assert len(cluster.all(KIND)) == 1
    assert usb("detach", "nothing").code == 3
