# SPDX-License-Identifier: Apache-2.0
"""`kubectl usb assign`, `unassign` and `reset`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cli.conftest import Cli
from tests.unit.cli.kubectl.conftest import Cluster
from tests.unit.cli.kubectl.make import record
from tests.unit.controller.make import CONTRACT, STICK
from usbdra import resetword
from usbdra.cli.kubectl import assigning
from usbdra.kube import errors
from usbdra.kube.types import EVENT, Kind

KIND = CONTRACT.node_device
KEY = CONTRACT.key("reset")


def device(namespace: str = "lab", **reasons: str) -> dict[str, Any]:
    item = record(namespace, "a", 480, STICK, **reasons)
    item["kind"] = KIND.kind
    return item


def test_assign_waits_for_the_condition(usb: Cli, cluster: Cluster) -> None:
    cluster.put(KIND, device(namespace="", Assigned="Available"))

    def controller(verb: str, kind: Kind, item: dict[str, Any]) -> None:
        if verb == "merge":
            cluster.put(kind, {**device(), "spec": item["spec"]})

    cluster.after_write = controller
    result = usb("assign", STICK, "-n", "lab", "--force")
    assert (result.code, result.out) == (0, f"{STICK}: Assigned it is\n")
    (stored,) = cluster.all(KIND)
    assert stored["spec"] == {"assignedNamespace": "lab", "force": True}


def test_unassign_that_takes_long_says_what_is_waited_for(usb: Cli, cluster: Cluster) -> None:
    cluster.put(KIND, device(Assigned="InProgress"))
    result = usb("unassign", STICK)
    assert (result.code, result.out) == (1, f"{STICK}: not done yet: InProgress it is\n")


@pytest.fixture
def agent(cluster: Cluster) -> list[resetword.Request]:
    """The agent of the device's node, which answers `Reset`, or `Busy` without force."""
    asked: list[resetword.Request] = []

    def answer(verb: str, kind: Kind, item: dict[str, Any]) -> None:
        if verb != "merge":
            return
        request = resetword.read(item["metadata"]["annotations"][KEY])
        asked.append(request)
        done = request.force or item["status"]["attributes"].get("idle", True)
        about = {"kind": KIND.kind, "name": STICK}
        note = request.note("reset by node a" if done else "not reset: in use")
        told = {"regarding": about, "type": "Normal" if done else "Warning", "note": note}
        other = {**told, "note": "reset by node a [some other]", "type": "Warning"}
        for name, event in (("old", other), ("new", told)):
            cluster.put(EVENT, {"metadata": {"name": name, "namespace": "default"}, **event})

    cluster.after_write = answer
    return asked


def test_reset_asks_and_waits_for_the_answer(
    usb: Cli, cluster: Cluster, agent: list[resetword.Request]
) -> None:
    cluster.put(KIND, device())
    result = usb("reset", STICK)
    assert (result.code, result.out) == (0, f"{STICK}: reset by node a\n")
    assert [request.force for request in agent] == [False]


def test_reset_tells_what_the_agent_refused(
    usb: Cli, cluster: Cluster, agent: list[resetword.Request]
) -> None:
    item = device()
    item["status"]["attributes"]["idle"] = False  # the object does not know of it yet
    cluster.put(KIND, item)
    result = usb("reset", STICK)
    assert (result.code, result.out) == (1, f"{STICK}: not reset: in use\n")
    assert usb("reset", STICK, "--force").code == 0


def test_reset_of_what_is_in_use_or_away_is_not_even_asked_for(
    usb: Cli, cluster: Cluster, agent: list[resetword.Request]
) -> None:
    item = device()
    (attached,) = (c for c in item["status"]["conditions"] if c["type"] == "Attached")
    attached["status"] = "True"
    cluster.put(KIND, item)
    result = usb("reset", STICK)
    assert result.code == 4
    assert "in use by Available it is; --force resets it all the same" in result.err
    assert usb("reset", STICK, "--force").code == 0
    cluster.put(KIND, device(Ready="NotFound"))
    assert usb("reset", STICK).out == f"{STICK}: NotFound it is\n"
    assert len(agent) == 1


def test_the_controller_answers_for_a_device_of_a_host_outside(
    usb: Cli, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = device()
    item["status"]["host"] = "pi"
    cluster.put(KIND, item)
    monkeypatch.setattr(assigning, "WAIT_SECONDS", 0.1)
    said = f"{STICK}: the controller has not answered for the device's host; does it run?\n"
    assert usb("reset", STICK, "--force").out == said


def test_reset_without_an_agent_or_the_right_to_see_events(usb: Cli, cluster: Cluster) -> None:
    cluster.put(KIND, device())
    assert "no agent has answered" in usb("reset", STICK).out
    real = cluster.list

    async def forbidden(kind: Kind, *rest: Any, **more: Any) -> Any:
        if kind is EVENT:
            raise errors.ApiForbidden("list", 403, "Forbidden", "no")
        return await real(kind, *rest, **more)

    cluster.list = forbidden  # type: ignore[method-assign]
    result = usb("reset", STICK)
    assert (result.code, "which you may not see" in result.out) == (1, True)
