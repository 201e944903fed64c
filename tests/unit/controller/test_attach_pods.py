# SPDX-License-Identifier: Apache-2.0
"""USBAttachments of running pods: what the agent is told, and every reason."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.controller.attachcluster import AttachCluster
from tests.unit.controller.make import STICK
from usbdra.controller.acts import What


@pytest.fixture
def cluster() -> AttachCluster:
    """A namespace with a device."""
    made = AttachCluster()
    made.assign()
    made.settle()
    return made


def attach(cluster: AttachCluster, **pod: str) -> None:
    spec = {"device": STICK, "pod": {"name": "app", **pod}}
    cluster._store(What.ATTACHMENT, "one", {"metadata": {}, "spec": spec})
    cluster.follow()
    cluster.settle()
    cluster.schedule()
    cluster.settle()


def status(cluster: AttachCluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.get(What.ATTACHMENT, "one")["status"]
    return found


def test_a_running_container_gets_the_device(cluster: AttachCluster) -> None:
    cluster.app("app", "main", "side")
    attach(cluster)
    assert status(cluster)["target"] == {
        "adapter": "pod", "pod": "app", "uid": "uid-app", "container": "main",
        "containerID": "main-1",
    }  # fmt: skip
    assert cluster.condition("one") == (
        "AttachedToPod", "in container main of pod app (node a)",
    )  # fmt: skip
    assert cluster.condition("one", "Ready") == ("Ready", "pod app can have it")


def test_the_claim_asks_for_the_drivers_and_nodes_that_a_container_needs(
    cluster: AttachCluster,
) -> None:
    cluster.app("app")
    attach(cluster)
    (name,) = cluster.names(What.CLAIM)
    claim = cluster.get(What.CLAIM, name)
    template = cluster.get(What.TEMPLATE, STICK)
    assert claim["spec"] == template["spec"]["spec"]


def test_a_container_by_its_name(cluster: AttachCluster) -> None:
    cluster.app("app", "main", "side")
    attach(cluster, container="side")
    assert status(cluster)["target"]["containerID"] == "side-1"


def test_a_container_that_is_not_there_is_told(cluster: AttachCluster) -> None:
    cluster.app("app", "main", "side")
    attach(cluster, container="other")
    assert cluster.condition("one", "Ready") == (
        "NotFound", "pod app has no container other; it has main, side",
    )  # fmt: skip
    assert cluster.names(What.POD) == []


def test_a_pod_that_does_not_run_is_waited_for(cluster: AttachCluster) -> None:
    attach(cluster)
    assert cluster.condition("one", "Ready") == ("NotRunning", "pod app does not run")
    cluster.app("app")
    cluster.settle()
    cluster.schedule()
    cluster.settle()
    assert cluster.condition("one")[0] == "AttachedToPod"


def test_a_container_that_starts_again_gets_it_again(cluster: AttachCluster) -> None:
    cluster.app("app")
    attach(cluster)
    holders = cluster.names(What.POD)
    cluster.app("app", life=0)
    cluster.settle()
    assert status(cluster)["target"]["containerID"] == ""
    assert cluster.condition("one")[0] == "InProgress"
    cluster.app("app", life=2)
    cluster.settle()
    assert status(cluster)["target"]["containerID"] == "main-2"
    assert cluster.condition("one")[0] == "InProgress"  # the agent's word is of the earlier life
    assert cluster.names(What.POD) == holders


def test_a_pod_that_ended_gives_it_back_and_another_of_its_name_gets_it(
    cluster: AttachCluster,
) -> None:
    cluster.app("app")
    attach(cluster)
    del cluster.apps["app"]
    cluster.follow()
    cluster.settle()
    cluster.end_holders()
    cluster.settle()
    assert cluster.names(What.POD) == []
    assert cluster.condition("one", "Ready")[0] == "NotRunning"
    cluster.app("app", uid="uid-again")
    cluster.settle()
    cluster.schedule()
    cluster.settle()
    assert status(cluster)["target"]["uid"] == "uid-again"
    assert cluster.condition("one")[0] == "AttachedToPod"


def test_a_pod_that_is_told_to_end_keeps_it_until_then(cluster: AttachCluster) -> None:
    cluster.app("app")
    attach(cluster)
    cluster.app("app", deletionTimestamp="2026-01-31T13:00:00Z")
    cluster.settle()
    assert cluster.condition("one")[0] == "AttachedToPod"


def test_one_that_ends_already_gets_none(cluster: AttachCluster) -> None:
    cluster.app("app", deletionTimestamp="2026-01-31T13:00:00Z")
    attach(cluster)
    assert cluster.condition("one", "Ready") == ("NotRunning", "pod app does not run")


def test_another_controller_takes_nothing_out_before_it_knows_the_pod(
    cluster: AttachCluster,
) -> None:
    cluster.app("app")
    attach(cluster)
    holders = cluster.names(What.POD)
    cluster.restart()
    cluster.settle()
    assert not any(cluster.going(What.POD, name) for name in holders)
    cluster.follow()
    cluster.settle()
    assert cluster.condition("one")[0] == "AttachedToPod"


def test_detached_in_order(cluster: AttachCluster) -> None:
    cluster.app("app")
    attach(cluster)
    cluster.delete(What.ATTACHMENT, "one")
    cluster.settle()
    cluster.end_holders()
    cluster.settle()
    assert cluster.names(What.ATTACHMENT) == []
    assert cluster.names(What.POD) == []
    assert cluster.world.named_pods == set()
